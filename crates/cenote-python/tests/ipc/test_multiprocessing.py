"""Queues and pipes of multiprocessing, with forked and with spawned processes."""

import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler

import cenote
import numpy as np
import pytest
from processes import eventually


@pytest.fixture(params=["fork", "spawn"])
def context(request):
    return multiprocessing.get_context(request.param)


def start_process(context, target, *args):
    process = context.Process(target=target, args=args)
    process.start()
    return process


def finish(process):
    process.join(60)
    assert process.exitcode == 0


def add_one(inbox, outbox):
    while (tensor := inbox.get()) is not None:
        outbox.put((tensor.writable, tensor.memory, cenote.Tensor.from_numpy(tensor.numpy() + 1)))


def test_tensors_go_through_queues_and_back(context, pool):
    inbox, outbox = context.Queue(), context.Queue()
    process = start_process(context, add_one, inbox, outbox)
    copied = cenote.copies()
    for value in range(5):
        tensor = pool.alloc((480, 640, 3), "uint8")
        tensor[...] = value
        inbox.put(tensor)
        del tensor
        writable, memory, answer = outbox.get(timeout=60)
        assert (writable, memory) == (False, "shm")
        assert (answer.numpy() == value + 1).all()
        assert not answer.writable
    # This process copied nothing, and the child has released all tensors.
    assert cenote.copies() == copied
    assert eventually(lambda: cenote.in_transit() == 0)
    inbox.put(None)
    finish(process)
    del answer
    assert eventually(lambda: pool.stats()["slots_in_use"] + pool.stats()["retired"] == 0)


def test_the_sender_holds_a_tensor_until_it_is_received(context, pool):
    queue = context.Queue()
    tensor = pool.alloc((1000,), "int64")
    tensor[...] = np.arange(1000)
    queue.put(tensor)
    del tensor
    assert eventually(lambda: pool.stats()["in_transit"] == 1)
    assert pool.stats()["slots_in_use"] == 1
    assert cenote.in_transit() == 1
    # The receiver can be the same process.
    received = queue.get(timeout=60)
    assert received.numpy().sum() == 499500
    assert pool.stats()["in_transit"] == 0
    del received
    assert pool.stats()["slots_in_use"] == 0


def receive_and_send_sums(connection):
    tensor = connection.recv()
    connection.send(int(tensor.numpy().sum()))
    connection.recv()
    connection.send(int(tensor.numpy().sum()))


def test_the_receiver_of_a_pipe_keeps_the_tensor(context, pool):
    here, there = context.Pipe()
    process = start_process(context, receive_and_send_sums, there)
    tensor = pool.alloc((1000,), "int64")
    tensor[...] = 1
    here.send(tensor)
    assert here.recv() == 1000
    assert eventually(lambda: pool.stats()["in_transit"] == 0)
    del tensor
    # The child has a lease, so the slot is not reused.
    assert pool.stats()["retired"] == 1
    assert [holder["pid"] for holder in pool.holders() if holder["retired_slots"]] == [process.pid]
    other = pool.alloc((1000,), "int64")
    other[...] = 2
    here.send("again")
    assert here.recv() == 1000
    finish(process)


def put_and_end(queue):
    queue.put(cenote.Tensor.from_numpy(np.arange(100)))


def test_a_child_waits_at_its_end_until_its_tensor_is_received(context):
    queue = context.Queue()
    process = start_process(context, put_and_end, queue)
    time.sleep(0.5)
    assert queue.get(timeout=60).numpy().sum() == 4950
    finish(process)


def put_and_be_killed(queue, ready):
    queue.put(cenote.Tensor((100,)))
    queue.close()
    queue.join_thread()
    ready.set()
    time.sleep(600)


def test_the_tensor_of_a_killed_sender_is_not_found(context):
    queue, ready = context.Queue(), context.Event()
    process = start_process(context, put_and_be_killed, queue, ready)
    assert ready.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with pytest.raises(cenote.NotFound, match="the process that made the tensor ended") as raised:
        queue.get(timeout=60)
    assert type(raised.value) is cenote.NotFound


def test_a_lent_tensor_is_copied(context, pool):
    queue = context.Queue()
    tensor = pool.alloc((1000,), "uint8")
    array = tensor.numpy()
    array[:] = 1
    before = cenote.copies()["Staged"]
    queue.put(tensor)
    assert eventually(lambda: cenote.in_transit() == 1)
    array[:] = 2
    assert (queue.get(timeout=60).numpy() == 1).all()
    after = cenote.copies()["Staged"]
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1000)
    assert tensor.writable


def test_a_tensor_outside_of_a_pool_is_copied():
    tensor = cenote.Tensor((10,), memory="mem")
    tensor[...] = 3
    again = pickle.loads(ForkingPickler.dumps(tensor))
    tensor[...] = 4
    assert again.tolist() == [3] * 10 and not again.writable
    assert cenote.in_transit() == 0


def test_plain_pickle_copies(pool):
    tensor = pool.alloc((10,))
    tensor[...] = 3
    again = pickle.loads(pickle.dumps(tensor))
    assert again.writable and tensor.writable
    assert cenote.in_transit() == 0
    again[...] = 4
    assert tensor.tolist() == [3] * 10


def test_a_message_that_is_unpickled_twice_is_stale(pool):
    message = bytes(ForkingPickler.dumps(pool.alloc((10,))))
    pickle.loads(message)
    other = pool.alloc((10,))
    with pytest.raises(cenote.Stale):
        pickle.loads(message)
    del other


def double(tensor):
    result = cenote.Tensor(tensor.shape, tensor.dtype)
    np.multiply(tensor.numpy(), 2, out=result.numpy())
    return result


def test_process_pools_map_tensors(context, pool):
    tensors = []
    for value in range(8):
        tensors.append(pool.alloc((100, 100), "float32"))
        tensors[-1].fill(value)
    with context.Pool(2) as workers:
        assert [int(tensor[0, 0].item()) for tensor in workers.map(double, tensors)] == list(range(0, 16, 2))
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        assert [int(tensor[0, 0].item()) for tensor in workers.map(double, tensors)] == list(range(0, 16, 2))


def check_argument(tensor, expected):
    # A spawned child gets the tensor by descriptor. A forked one has a copy of the object, whose content is undefined.
    if multiprocessing.get_start_method(allow_none=True) == "spawn":
        assert (tensor.numpy() == expected).all()
    assert tensor.shape == (10,)


def test_a_tensor_as_an_argument_of_a_process(context, pool):
    tensor = pool.alloc((10,))
    tensor[...] = 5
    finish(start_process(context, check_argument, tensor, 5))
    assert eventually(lambda: cenote.in_transit() == 0)


def test_tensors_are_released_if_pickling_fails(pool):
    tensor = pool.alloc((10,))
    with pytest.raises(Exception, match="^Can't (pickle|get) local object"):
        ForkingPickler.dumps([tensor, pool.alloc((10,)), lambda: None])
    assert cenote.in_transit() == 0
    # If pickling succeeds, they are held.
    message = bytes(ForkingPickler.dumps([tensor, tensor]))
    assert cenote.in_transit() >= 1
    assert pickle.loads(message)[0].shape == (10,)
    assert cenote.in_transit() == 0


def test_recall_releases_tensors_that_were_not_received(pool):
    message = bytes(ForkingPickler.dumps(pool.alloc((10,))))
    assert cenote.in_transit() == pool.stats()["in_transit"] == pool.stats()["slots_in_use"] == 1
    assert cenote.recall(older_than=3600) == 0 and cenote.in_transit() == 1
    assert cenote.recall() == 1
    assert cenote.in_transit() == pool.stats()["slots_in_use"] == 0
    assert cenote.recall() == 0
    other = pool.alloc((10,))
    with pytest.raises(cenote.Stale):
        pickle.loads(message)
    del other
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError):
            cenote.recall(bad)


def address_of(message):
    """The address in a message to which the receiver sends the token."""
    return re.search(rb"/proc/\d+/fd/\d+", message).group().decode()


def test_other_users_cannot_send_tokens(pool):
    message = bytes(ForkingPickler.dumps(pool.alloc((10,))))
    address = address_of(message)
    assert address.startswith(f"/proc/{os.getpid()}/fd/")
    # An unknown token has no effect.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for token in (b"", b"x" * 16, b"x" * 100):
            client.sendto(token, address)
    if os.geteuid() == 0:  # only root can become another user
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            try:
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", address)
            except PermissionError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cenote.in_transit() == 1
    pickle.loads(message)
    assert cenote.in_transit() == 0


KILLED_SENDER = """
import os, signal, cenote
from multiprocessing.reduction import ForkingPickler
ForkingPickler.dumps(cenote.Tensor((10,)))
assert cenote.in_transit() == 1
print(os.listdir(os.environ["TMPDIR"]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_sender_leaves_no_socket_file(tmp_path):
    # A path that is too long for the address of a socket.
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    environment = dict(os.environ, TMPDIR=str(directory))
    done = subprocess.run([sys.executable, "-c", KILLED_SENDER], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "[]\n", "")


def test_a_forked_child_closes_its_parents_socket(pool):
    message = bytes(ForkingPickler.dumps(pool.alloc((10,))))
    number = int(address_of(message).rpartition("/")[2])
    assert os.path.exists(f"/proc/self/fd/{number}")
    child = os.fork()
    if child == 0:
        try:
            is_closed = not os.path.exists(f"/proc/self/fd/{number}") and cenote.in_transit() == 0
            # The token goes to the parent's socket.
            assert pickle.loads(message).shape == (10,)
            # The child opens a socket when it sends a tensor.
            with cenote.TensorPool(f"child-{os.getpid()}", size_mb=64) as own:
                again = bytes(ForkingPickler.dumps(own.alloc((3,))))
                assert address_of(again).startswith(f"/proc/{os.getpid()}/") and cenote.in_transit() == 1
        except BaseException:
            os._exit(2)
        os._exit(0 if is_closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert eventually(lambda: cenote.in_transit() == 0)


def test_ctrl_c_ends_the_wait_at_the_end_of_a_process(pool):
    message = bytes(ForkingPickler.dumps(pool.alloc((10,))))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            cenote._multiprocessing._wait_until_received(3600)
    finally:
        signal.signal(signal.SIGALRM, before)
    threading.Timer(0.2, pickle.loads, [message]).start()
    cenote._multiprocessing._wait_until_received(3600)
    assert cenote.in_transit() == 0


def test_simple_queues_and_pipes_make_a_tensor_read_only_at_once(context, pool):
    queue, (here, there) = context.SimpleQueue(), context.Pipe()
    for put, get in ((queue.put, queue.get), (here.send, there.recv)):
        tensor = pool.alloc((10,), "uint8")
        tensor.fill(1)
        put(tensor)
        with pytest.raises(cenote.ReadOnlyError):
            tensor.fill(2)
        assert get().tolist() == [1] * 10


def test_descriptor_makes_a_tensor_read_only_before_a_queue_pickles_it(context, pool):
    queue = context.Queue()
    tensor = pool.alloc((10,), "uint8")
    tensor.fill(1)
    tensor.descriptor()
    queue.put(tensor)
    with pytest.raises(cenote.ReadOnlyError):
        tensor.fill(2)
    assert queue.get(timeout=60).tolist() == [1] * 10
