"""Memory outlives pools, tensors and the interpreter; forked children do no harm."""

from programs import run_program


def test_arrays_buffers_and_capsules_outlive_pool_and_tensor():
    run_program("""
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
    run_program("""
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


def test_messages_outlive_topic_and_pool():
    run_program("""
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


def test_a_forked_child_neither_crashes_nor_writes_its_parents_memory():
    run_program("""
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
            # The child can make pools and tensors.
            mine = cenote.TensorPool(name + "-child", size_mb=64)
            own = filled(mine, 9)
            assert cenote.Tensor.from_descriptor(own.descriptor()).numpy()[0] == 9
            # The child can attach to the parent's tensor by descriptor.
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


def test_forked_children_of_forked_children():
    run_program("""
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


def test_a_forked_child_cannot_use_its_parents_topics():
    run_program("""
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


def test_a_forked_child_does_not_wait_for_a_buffer_that_was_locked_at_the_fork():
    run_program("""
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


def test_objects_survive_the_end_of_the_interpreter():
    run_program("""
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


def test_the_interpreter_ends_while_threads_wait_and_allocate():
    run_program("""
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
    def convert():
        while True:
            tensor = cenote.Tensor(Lengths(), Kind())
            tensor.reshape(Length(), -1)[Length().__index__() - 1]
            cenote.Image(Length(), Length(), "grey")
            cenote.DepthImage(4, 4, intrinsics=(Focus(), Focus(), Focus(), 1))
            cenote.Tensor.from_dlpack(tensor.copy())
    for target in (wait, wait, work, work, convert, convert):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.3)
    """)


def test_the_interpreter_ends_while_threads_send_and_receive():
    run_program("""
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


def test_the_interpreter_ends_while_threads_synchronize_a_buffer():
    run_program("""
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
