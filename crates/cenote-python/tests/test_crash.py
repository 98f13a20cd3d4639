"""Tries to outlive everything. Each scene runs in a process of its own, which must end well."""

import random
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import atexit, ctypes, gc, os, random, signal, sys, threading, time, weakref
import numpy as np
import cenote

name = f"crash-{os.getpid()}"

def filled(pool, value=7, shape=(1000,), dtype="int64"):
    tensor = pool.alloc(shape, dtype)
    tensor[...] = value
    return tensor

def synchronizing():
    buffer = cenote.MemoryPool().acquire(32 << 20, "uint8")
    buffer.zeros()
    def work():
        while True:
            buffer.host[0] = 1
            buffer.synchronize()
    return buffer, work
"""


def scene(code, *arguments):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


def test_everything_outlives_pool_and_tensor():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64)
    tensor = filled(pool)
    sent = filled(pool)
    sent.descriptor()
    kept = [tensor.numpy(), tensor.numpy()[3:], memoryview(tensor), np.asarray(tensor), np.from_dlpack(tensor),
            tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0)), tensor[5:], tensor.T, sent.numpy(),
            np.from_dlpack(sent), memoryview(sent), iter(tensor), cenote.Tensor.from_dlpack(tensor)]
    interface = tensor.__array_interface__
    pool.close()
    del tensor, sent, pool
    gc.collect()
    others = cenote.TensorPool(name, size_mb=64)
    noise = [filled(others, 9) for _ in range(100)]
    for each in kept:
        if hasattr(each, "__getitem__"):
            assert int(np.asarray(each)[6]) == 7, each
    kept[0][:] = 8
    assert kept[2][0] == 8 and int(kept[7].numpy()[0]) == 8
    random.Random(1).shuffle(kept)
    while kept:
        kept.pop()
        gc.collect()
    """)


def test_cycles_are_collected_in_any_order():
    scene("""
    class Node: pass
    pool = cenote.TensorPool(name, size_mb=64)
    for turn in range(50):
        nodes = [Node() for _ in range(4)]
        for index, node in enumerate(nodes):
            node.tensor = filled(pool)
            node.array = node.tensor.numpy()
            node.view = memoryview(node.tensor)
            node.capsule = node.tensor.__dlpack__()
            node.next = nodes[(index + 1) % 4]
            node.gone = weakref.finalize(node, lambda array: array.sum(), node.array)
    del nodes, node
    gc.collect()
    """)


def test_a_forked_child_neither_crashes_nor_writes_the_parents_memory():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64)
    tensor, sent = filled(pool), filled(pool)
    descriptor = sent.descriptor()
    array, view, reading = tensor.numpy(), memoryview(tensor.numpy()), sent.numpy()
    plain = cenote.Tensor((1000,), "int64", memory="shm")
    shared = plain.numpy()
    pid = os.fork()
    if pid == 0:
        try:
            array[:] = 1
            view[5] = 2
            shared[:] = 3
            tensor.numpy()[...] = 4
            tensor[...] = 5
            plain[...] = 6
            reading.sum(), sent.tobytes(), repr(pool), repr(tensor), pool.is_alive
            for refused in (lambda: pool.alloc((1,)), lambda: pool.stats(), lambda: tensor.descriptor()):
                try:
                    refused()
                except cenote.Error:
                    pass
                else:
                    os._exit(3)
            # What it makes itself works.
            mine = cenote.TensorPool(name + "-child", size_mb=64)
            own = filled(mine, 9)
            assert cenote.Tensor.from_descriptor(own.descriptor()).numpy()[0] == 9
            # By descriptor it has the parent's.
            assert int(cenote.Tensor.from_descriptor(descriptor).numpy()[3]) == 7
            assert cenote.Tensor((3,)).tolist() == [0, 0, 0]
            del array, view, reading, shared, own
            gc.collect()
        except BaseException as error:
            print(error)
            os._exit(2)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (array == 7).all() and (reading == 7).all() and (shared == 0).all()
    array[:] = 8
    assert tensor.tolist() == [8] * 1000
    assert pool.stats()["slots_in_use"] == 2
    """)


def test_children_of_children():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64)
    arrays = [filled(pool).numpy()]
    def descend(depth):
        arrays[-1][:] = depth
        arrays.append(cenote.Tensor((1000,), "int64").numpy())
        if depth == 0:
            return
        pid = os.fork()
        if pid == 0:
            descend(depth - 1)
            for array in arrays:
                array[:] = -1
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert (arrays[-2] == depth).all() and (arrays[-1] == 0).all()
    descend(4)
    """)


def test_the_end_of_the_interpreter():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64)
    tensor = filled(pool)
    array, view, capsule = tensor.numpy(), memoryview(tensor), tensor.__dlpack__()
    foreign = cenote.Tensor.from_dlpack(np.arange(10))
    process = cenote.Tensor((10,))
    sys.kept = [tensor, array, pool, foreign]
    np.kept = array[5:]
    class Last:
        def __init__(self, *kept):
            self.kept = kept
        def __del__(self):
            for each in self.kept:
                repr(each)
            try:
                cenote.Tensor((10,)).numpy()
            except Exception:
                pass
    sys.last = Last(tensor, array, pool, view, capsule, foreign)
    atexit.register(lambda: tensor.numpy().sum())
    atexit.register(pool.close)
    """)


def test_the_end_of_the_interpreter_while_threads_wait():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64, max_slots=1)
    only = pool.alloc((4,))
    def wait():
        array = only.numpy()
        pool.alloc((4,), timeout=600)
    def work():
        while True:
            tensor = cenote.Tensor((100, 100))
            tensor[...] = 1
            tensor.descriptor()
            tensor.numpy().sum()
    class Length:
        def __index__(self):
            return sum(1 for _ in range(50))
    class Lengths:
        def __iter__(self):
            yield from (Length(), Length())
    class Kind:
        @property
        def dtype(self):
            return np.dtype(("float32", "uint8")[sum(range(3)) % 2])
    class Focus:
        def __float__(self):
            return float(sum(1 for _ in range(50)))
    def ask():
        while True:
            tensor = cenote.Tensor(Lengths(), Kind())
            tensor.reshape(Length(), -1)[Length().__index__() - 1]
            cenote.Image(Length(), Length(), "grey")
            cenote.DepthImage(4, 4, intrinsics=(Focus(), Focus(), Focus(), 1))
            cenote.Tensor.from_dlpack(tensor.copy())
    for target in (wait, wait, work, work, ask, ask):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.3)
    """)


def test_threads_that_write_and_publish_at_the_same_time():
    scene("""
    pool = cenote.TensorPool(name, size_mb=64, max_slots=128)
    end, wrong = time.monotonic() + 2, []
    def publish():
        while time.monotonic() < end:
            tensor = pool.alloc((64,), "int64")
            writer = threading.Thread(target=write, args=(tensor,))
            writer.start()
            try:
                tensor.descriptor()
            except cenote.ReadOnlyError:
                writer.join()
                continue
            before = tensor.tobytes()
            writer.join()
            if tensor.tobytes() != before:
                wrong.append(before)
    def write(tensor):
        try:
            for value in range(20):
                tensor[...] = value
        except cenote.ReadOnlyError:
            pass
        array = tensor.numpy()
        if array.flags.writeable:
            np.add(array, 1, out=array)
    threads = [threading.Thread(target=publish) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
    """)


MONKEY = """
seed = int(sys.argv[1])
chance = random.Random(seed)
pools = [cenote.TensorPool(f"{name}-{n}", size_mb=64, max_slots=64) for n in range(2)]
tensors, others, published, kept = [], [], [], []

def pick():
    return chance.choice(tensors) if tensors else make()

def make():
    made = chance.choice([
        lambda: chance.choice(pools).alloc((chance.randint(1, 9), chance.randint(1, 9)), chance.choice(["uint8", "float32"])),
        lambda: cenote.Tensor((chance.randint(1, 9),), "int16"),
        lambda: cenote.Tensor((3, 3), memory=chance.choice(["mem", "shm"])),
        lambda: cenote.Tensor.from_numpy(np.ones((2, 3))),
        lambda: cenote.Tensor.from_dlpack(np.zeros((4, 4), "float32")),
    ])()
    tensors.append(made)
    return made

def publish():
    tensor = pick()
    descriptor = tensor.descriptor()
    published.append((tensor, tensor.tobytes(), descriptor))

def check():
    if published:
        tensor, content, descriptor = chance.choice(published)
        assert tensor.tobytes() == content, "bytes changed"
        again = cenote.Tensor.from_descriptor(descriptor)
        assert again.tobytes() == content
        assert not again.numpy().flags.writeable
        tensors.append(again)

def write():
    if others:
        target = chance.choice(others)
        if isinstance(target, np.ndarray):
            target[...] = chance.randint(0, 99)
            target.flags.writeable = True
        elif isinstance(target, memoryview):
            target.cast("B")[0] = chance.randint(0, 99)

def tensor_buffer():
    # numpy goes on using a buffer that was released under it: that of a tensor that is kept.
    tensor = pick()
    array = np.asarray(tensor)
    array.base.release()
    kept.append(tensor)
    others.append(array)

def child():
    pid = os.fork()
    if pid == 0:
        for _ in range(5):
            step()
        for other in others:
            if isinstance(other, np.ndarray) and other.flags.writeable:
                other[...] = 77
        os._exit(0)
    os.waitpid(pid, 0)

def forget(what):
    if what:
        what.pop(chance.randrange(len(what)))

def close():
    pools.append(cenote.TensorPool(f"{name}-{chance.random()}", size_mb=64, max_slots=64))
    pools.pop(0).close()

STEPS = [make, publish, check, write, child, close, gc.collect,
    lambda: others.append(pick().numpy()), lambda: others.append(memoryview(pick())), lambda: others.append(memoryview(pick().numpy())),
    lambda: others.append(np.from_dlpack(pick())), lambda: others.append(pick().__dlpack__()),
    lambda: others.append(np.asarray(pick())), lambda: others.append(iter(pick())),
    lambda: others.append(chance.choice(others)[1:]), lambda: others.append(chance.choice(others).T),
    lambda: tensors.append(chance.choice(tensors)[chance.randint(-2, 2)]), lambda: tensors.append(pick().T),
    lambda: tensors.append(pick()[::-1]), lambda: tensors.append(pick().copy()),
    lambda: tensors.append(cenote.Tensor.from_dlpack(chance.choice(others))),
    lambda: tensors.append(cenote.Tensor.from_dlpack(pick())),
    lambda: pick().__setitem__(..., chance.randint(0, 99)), lambda: pick().fill(3), lambda: repr(pick()),
    lambda: np.add(1, 1, out=pick().numpy(), casting="unsafe"), lambda: others[0].release(), lambda: tensor_buffer(),
    lambda: forget(tensors), lambda: forget(others), lambda: forget(published), lambda: forget(tensors),
    lambda: others.clear() if chance.random() < 0.1 else None,
]
WEIGHTS = [0.1 if step is child else 1 for step in STEPS]

def step():
    try:
        chance.choices(STEPS, WEIGHTS)[0]()
    except AssertionError:
        raise
    except Exception:
        pass

for turn in range(int(sys.argv[2])):
    step()
for tensor, content, _ in published:
    assert tensor.tobytes() == content, "bytes changed"
everything = tensors + others + published + pools
del tensors[:], others[:], published[:], pools[:]
chance.shuffle(everything)
while everything:
    everything.pop()
"""


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_calls(seed):
    scene(MONKEY, seed, 3000)


def test_other_sequences():
    seed = random.randrange(10**9)
    print("seed", seed)
    scene(MONKEY, seed, 3000)


def test_messages_outlive_everything():
    scene("""
    there, back = cenote.Topic(name, cenote.Image, depth=2), cenote.Topic(name, cenote.Tensor)
    back.subscribe(); there.subscribe()
    kept = []
    for value in range(20):
        image = there.image(64, 48) if value % 2 else cenote.Image(64, 48)
        image.fill(value)
        writer = image.numpy() if value % 3 else None
        there.send(image)
        if writer is not None:
            writer[...] = 99
        received = there.recv(timeout=30), back.recv(timeout=30)
        kept.append((value, [each.numpy() for each in received], received[0].roi(1, 1, 4, 4), memoryview(received[1])))
        del image, writer, received
    there.close()
    del there, back
    gc.collect()
    noise = [filled(cenote.TensorPool(f"{name}.{i}", size_mb=64), 9) for i in range(3)]
    again = cenote.Topic(name, cenote.Image)
    for _ in range(50):
        again.send(cenote.Image(64, 48))
    for value, arrays, part, view in kept:
        assert all((array == value).all() and not array.flags.writeable for array in arrays)
        assert (part.numpy() == value).all() and view[3, 4, 1] == value and view.readonly
    random.Random(2).shuffle(kept)
    while kept:
        kept.pop()
        gc.collect()
    """)


def test_a_forked_child_has_no_part_in_topics():
    scene("""
    topic = cenote.Topic(name, cenote.Image)
    topic.subscribe()
    image = cenote.Image(64, 48)
    array = image.numpy()
    array[...] = 5
    sent = cenote.Image(64, 48)
    topic.send(sent)
    received = topic.recv(timeout=30).numpy()
    child = os.fork()
    if child == 0:
        array[...] = 6
        received.sum()
        assert type(topic.last_error()) is type(topic.last_error()) is cenote.Forked
        for forbidden in (
            topic.recv, lambda: topic.recv(timeout=0), topic.latest, topic.fileno, lambda: topic.send(sent),
            topic.stats, lambda: topic.missed, topic.last_loss,
        ):
            try:
                forbidden()
            except cenote.Forked:
                continue
            os._exit(1)
        with cenote.Topic(name + ".child", cenote.Image) as own:
            own.subscribe()
            own.send(cenote.Image(8, 8, seq=3))
            assert own.recv(timeout=30).seq == 3
        del topic, array, received, image, sent
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 5).all() and not received.any()
    topic.send(cenote.Image(8, 8, seq=4))
    assert topic.recv(timeout=30).seq == 4
    """)


def test_the_interpreter_ends_while_threads_wait_and_send():
    scene("""
    topic = cenote.Topic(name, cenote.Image, depth=2)
    other = cenote.Topic(name, cenote.Image)
    silent = cenote.Topic(name + ".silent", cenote.Image)
    def send():
        while True:
            image = cenote.Image(64, 48)
            image.numpy()[0] = 1
            topic.send(image)
    def receive():
        kept = []
        for image in other:
            kept = kept[-3:] + [image.numpy()]
    for work in (send, receive, silent.recv, lambda: silent.wait_for_subscribers(3)):
        threading.Thread(target=work, daemon=True).start()
    last = other.recv(timeout=30).numpy()
    atexit.register(lambda: topic.send(cenote.Image(4, 4)))
    time.sleep(0.2)
    """)


def test_a_child_never_waits_for_a_buffer_that_was_in_use_when_it_was_forked():
    scene("""
    buffer, work = synchronizing()
    threading.Thread(target=work, daemon=True).start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(100)
            try:
                buffer.state, buffer.shape, repr(buffer)
            except cenote.Forked:
                pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """)


def test_the_end_of_the_interpreter_while_a_thread_synchronizes():
    scene("""
    buffer, work = synchronizing()
    class Last:
        def __init__(self, buffer):
            self.buffer = buffer
        def __del__(self):
            repr(self.buffer), self.buffer.state, self.buffer.shape
            self.buffer.synchronize()
    sys.last = Last(buffer)
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    signal.alarm(100)
    """)
