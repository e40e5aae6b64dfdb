"""System calls within a callback, from strace and the marks of the timing plugin."""

import re
from collections import Counter

LINE = re.compile(r"^(?P<thread>\d+)\s+(?P<name>[a-z_0-9]+)\((?P<rest>.*)$")
MARK = re.compile(r'"aml-dist-bench (?P<word>pause|begin|end|resume) (?P<callback>[a-z_]+)"')


def read(text):
    """Returns {callback: [one Counter of system calls for each time it ran]} from `strace -f -o` output. What lies
    between pause and begin, or end and resume, is the timing plugin's own."""
    threads, found = {}, {}
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        stack = threads.setdefault(match["thread"], [])  # of (callback or None while pausing, Counter)
        mark = MARK.search(match["rest"]) if match["name"] == "write" else None
        if not mark:
            if stack and stack[-1][0]:
                for _, counter in stack:
                    counter[match["name"]] += 1
        elif mark["word"] == "pause":
            stack.append((None, Counter()))
        elif mark["word"] == "begin":
            stack[-1:] = [(mark["callback"], Counter())]
        elif mark["word"] == "end" and stack:
            found.setdefault(mark["callback"], []).append(stack.pop()[1])
            stack.append((None, Counter()))
        elif mark["word"] == "resume" and stack:
            stack.pop()
    return found


def usual(counters):
    """The most common outcome as a dictionary of numbers by name; None if it was never seen."""
    if not counters:
        return None
    return dict(Counter(tuple(sorted(counter.items())) for counter in counters).most_common(1)[0][0])
