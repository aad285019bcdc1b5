# SPDX-License-Identifier: Apache-2.0
"""The protocol of bench/train.h: a program that trains takes a step, writes its loss, and answers commands on standard input."""
import math
import sys
import time

MIN_STEPS, ROUND_SECONDS = 3, 0.05  # as in bench/train_child.c


def peak_mib():
    """The most memory that this process ever had."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0


def serve(step, read, agreed=lambda steps: steps):
    """step() takes a step and gives its loss, read(loss) its number. agreed(n) tells other processes to take n steps too."""
    def run(steps):
        for _ in range(steps):
            loss = step()
        return read(loss)

    def rate(steps):
        agreed(steps)
        begin = time.perf_counter()
        run(steps)
        return steps / (time.perf_counter() - begin)

    print(f"first {read(step()):.9g}", flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "time":
            speed, rates, begin = rate(MIN_STEPS), [], time.perf_counter()
            while len(rates) < 3 or time.perf_counter() - begin < float(number):
                speed = rate(max(MIN_STEPS, math.ceil(speed * ROUND_SECONDS)))
                rates.append(speed)
            print("rates", *(f"{r:.6g}" for r in rates), flush=True)
        elif word == "steps":
            losses = []
            for _ in range(int(float(number))):
                agreed(1)
                losses.append(run(1))
            print("losses", *(f"{loss:.9g}" for loss in losses), flush=True)
        elif word == "end":
            break
        else:
            raise SystemExit(f"'{line.strip()}' is no command of bench/train.h")
    agreed(0)
    print(f"memory {peak_mib():.6g}", flush=True)
