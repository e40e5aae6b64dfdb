"""What srun's line says when rank 2 of four does something wrong: for each kind of failure in mpi_faults.c."""

from __future__ import annotations

import re

OWN = "rank 2 (local 0) on node2"
# What the line says of rank 2 for each kind of failure in mpi_faults.c.
SENTENCES = {
    "late": rf"barrier #\d+: {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "stopped": rf"barrier #\d+: {re.escape(OWN)} is stopped after \S+ .*for \d+ s; 3 ranks wait"
               rf"|barrier #\d+: {re.escape(OWN)} is stopped.*; 3 ranks wait",
    "skipped": rf"barrier #\d+: {re.escape(OWN)} (called allreduce #\d+ .*instead|has not called it).*; 3 ranks wait",
    "finalize": rf"barrier #\d+: {re.escape(OWN)} called finalize #\d+ instead; 3 ranks wait",
    "communicator": rf"barrier #\d+: {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "operation": rf"barrier #\d+: {re.escape(OWN)} called alltoall #\d+ .* instead; 3 ranks wait",
    "root": rf"broadcast #\d+ .*: {re.escape(OWN)} called broadcast #\d+ .* with root \d instead of root \d; \d ranks? waits?",
    "count": rf"broadcast #\d+ .*: {re.escape(OWN)} called broadcast #\d+ \(0 .*\) instead; \d ranks? waits?",
    "circle": r"deadlock of 4 ranks for \d+ s: rank \d waits in send .* for rank \d, .*",
    "persistent": rf"(barrier #\d+|recv .* from rank 2): {re.escape(OWN)} has not (called|met) it for \d+ s; 3 ranks wait",
    "prepared": rf"allreduce #\d+ \(4 float32, 16 bytes\) of group 'persistent allreduce #\d+ of ranks 0-3': {re.escape(OWN)} has not "
                r"called it for \d+ s; 3 ranks wait",
    "unprepared": rf"(barrier #1 of group 'persistent barrier #\d+ of ranks 0-3'|persistent_init #\d+): {re.escape(OWN)} has not called it "
                  r"for \d+ s; 3 ranks wait",
    "gather": rf"recv .* from rank 2: {re.escape(OWN)} has not met it for \d+ s; 1 rank waits",
    "serve": rf"recv .* from any rank: {re.escape(OWN)} has not met it for \d+ s; 3 ranks wait",
    "file": rf"MPI_File_set_size #1 of group 'file of ranks 0-3': {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "ahead": rf"allreduce #\d+ \(4 float32, 16 bytes\): {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "polls": rf"allreduce #\d+ \(4 float32, 16 bytes\): {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "replace": rf"recv .* from rank 2: {re.escape(OWN)} has not met it for \d+ s; 1 rank waits",
    "groups": rf"barrier #\d+ of group 'between ranks 0-3': {re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "group-message": rf"(barrier #\d+|recv .* of group 'between ranks 0-3'): {re.escape(OWN)} has not (called|met) it for \d+ s; "
                     "3 ranks wait",
    "many": rf"barrier #\d+: {re.escape(OWN)} has not called it for \d+ s; 1 rank waits",
    "lock": rf"barrier #\d+: {re.escape(OWN)} has not called it for \d+ s; 2 ranks wait",
    "message": rf"(barrier #\d+|recv .* from rank 2): {re.escape(OWN)} has not (called|met) it for \d+ s; 3 ranks wait",
}


# A rank that leaves without MPI_Finalize: a PMIx server then ends the step by itself, PMI2 does not.
LEFT = (rf"(hang: barrier #\d+: {re.escape(OWN)} (is dead|has ended with status 0) after .*; 3 ranks wait"
        rf"|first failure: {re.escape(OWN)}: exit status 0 without MPI_Finalize, .* after the start, after .*)")


def hang_lines(done) -> list[str]:
    return [line for line in done.err.splitlines() if line.startswith("aml-dist: hang: ")]
