"""Random sequences of calls neither crash nor change a published tensor."""

import random

import pytest
from programs import run_program

PROGRAM = """
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
    # numpy still uses the buffer after this release, so the tensor has to be kept.
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
def test_the_same_random_calls_each_time(seed):
    run_program(PROGRAM, seed, 3000)


def test_other_random_calls_each_time():
    seed = random.randrange(10**9)
    print("seed", seed)
    run_program(PROGRAM, seed, 3000)
