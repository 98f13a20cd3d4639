"""Helpers for tests of topics."""

import cenote

# Seconds. No test takes that long, unless it fails.
LONG = 60


def an_image(value=7, size=(64, 48), **header):
    image = cenote.Image(*size, "rgb8", **header)
    image.fill(value)
    return image


def is_all(message, value):
    return bool((message.numpy() == value).all())


PUBLISHER = """
import sys, cenote
topic = cenote.Topic(sys.argv[1], cenote.Image)
assert topic.wait_for_subscribers(1, timeout=60) == 1
print("ready")
for line in sys.stdin:
    seq = int(line)
    image = topic.image(640, 480)
    image.fill(seq % 256)
    image.seq = seq
    topic.send(image)
    print(topic.stats()["copies"])
"""

SUBSCRIBER = """
import sys, cenote
topic = cenote.Topic(sys.argv[1], cenote.Image)
topic.subscribe()
print("ready")
held = []
for image in topic:
    held.append(image.numpy())
    print(image.seq, held[-1].min(), held[-1].max(), image.frame_id)
"""


def write_line(child, line):
    child.process.stdin.write(f"{line}\n")
    child.process.stdin.flush()
