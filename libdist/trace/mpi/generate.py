#!/usr/bin/python3
"""Writes the wrappers of the MPI calls that are recorded: `wrapped_calls.inc`, and `function_names.inc` for the preloaded part.

One line per call: its name, its parameters as in the MPI standard, and what is recorded of them. The result is committed, so
that a build needs no Python; `generate.py --check` fails where it is out of date.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
BUFFERS = {
    "allreduce": "const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op",
    "gather": "const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype",
    "gatherv": "const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int* recvcounts, "
               "const DISPL* displs, MPI_Datatype recvtype",
    "scatterv": "const void* sendbuf, const int* sendcounts, const DISPL* displs, MPI_Datatype sendtype, void* recvbuf, "
                "int recvcount, MPI_Datatype recvtype",
    "alltoallv": "const void* sendbuf, const int* sendcounts, const DISPL* sdispls, MPI_Datatype sendtype, void* recvbuf, "
                 "const int* recvcounts, const DISPL* rdispls, MPI_Datatype recvtype",
    "alltoallw": "const void* sendbuf, const int* sendcounts, const DISPL* sdispls, const MPI_Datatype* sendtypes, "
                 "void* recvbuf, const int* recvcounts, const DISPL* rdispls, const MPI_Datatype* recvtypes",
}
BUFFERS["neighbor_alltoallw"] = BUFFERS["alltoallw"].replace("DISPL*", "MPI_Aint*")
# Name; parameters before the communicator; the operation; then count, type, root and reduction as C expressions.
NONE = ("0", "no_type()", "-1", "no_op()")
SENT = ("sendcount", "sendtype", "-1", "no_op()")
GOT = ("recvcount", "recvtype", "-1", "no_op()")
SENT_TO_ROOT = ("sendcount", "sendtype", "root", "no_op()")
COLLECTIVES = [
    ("Barrier", "", "Operation::barrier", NONE),
    ("Bcast", "void* buffer, int count, MPI_Datatype datatype, int root", "Operation::broadcast",
     ("count", "datatype", "root", "no_op()")),
    ("Reduce", BUFFERS["allreduce"] + ", int root", "Operation::reduce", ("count", "datatype", "root", "op")),
    ("Allreduce", BUFFERS["allreduce"], "Operation::allreduce", ("count", "datatype", "-1", "op")),
    ("Gather", BUFFERS["gather"] + ", int root", "Operation::gather", SENT_TO_ROOT),
    ("Gatherv", BUFFERS["gatherv"] + ", int root", "other::gatherv", SENT_TO_ROOT),
    ("Scatter", BUFFERS["gather"] + ", int root", "Operation::scatter", ("recvcount", "recvtype", "root", "no_op()")),
    ("Scatterv", BUFFERS["scatterv"] + ", int root", "other::scatterv", ("recvcount", "recvtype", "root", "no_op()")),
    ("Allgather", BUFFERS["gather"], "Operation::allgather", GOT),
    ("Allgatherv", BUFFERS["gatherv"], "Operation::allgatherv", ("0", "recvtype", "-1", "no_op()")),
    ("Alltoall", BUFFERS["gather"], "Operation::alltoall", GOT),
    ("Alltoallv", BUFFERS["alltoallv"], "Operation::alltoallv", ("0", "recvtype", "-1", "no_op()")),
    ("Alltoallw", BUFFERS["alltoallw"], "other::alltoallw", NONE),
    ("Reduce_scatter", "const void* sendbuf, void* recvbuf, const int* recvcounts, MPI_Datatype datatype, MPI_Op op",
     "other::reduce_scatterv", ("0", "datatype", "-1", "op")),
    ("Reduce_scatter_block", "const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op",
     "Operation::reduce_scatter", ("recvcount", "datatype", "-1", "op")),
    ("Scan", BUFFERS["allreduce"], "other::scan", ("count", "datatype", "-1", "op")),
    ("Exscan", BUFFERS["allreduce"], "other::exscan", ("count", "datatype", "-1", "op")),
    ("Neighbor_allgather", BUFFERS["gather"], "other::neighbor", SENT),
    ("Neighbor_allgatherv", BUFFERS["gatherv"], "other::neighbor", SENT),
    ("Neighbor_alltoall", BUFFERS["gather"], "other::neighbor", SENT),
    ("Neighbor_alltoallv", BUFFERS["alltoallv"], "other::neighbor", NONE),
    ("Neighbor_alltoallw", BUFFERS["neighbor_alltoallw"], "other::neighbor", NONE),
]
MESSAGE = "const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm"
RECEIPT = "void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm"
SENDS = ["Send", "Ssend", "Bsend", "Rsend"]
# Calls of all members that give a communicator: name, parameters, the parent, the new one.
CREATORS = [
    ("Comm_dup", "MPI_Comm comm, MPI_Comm* newcomm"),
    ("Comm_dup_with_info", "MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm"),
    ("Comm_split", "MPI_Comm comm, int color, int key, MPI_Comm* newcomm"),
    ("Comm_split_type", "MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm"),
    ("Comm_create", "MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm"),
    ("Cart_create", "MPI_Comm comm, int ndims, const int* dims, const int* periods, int reorder, MPI_Comm* newcomm"),
    ("Intercomm_merge", "MPI_Comm comm, int high, MPI_Comm* newcomm"),
    ("Comm_spawn", "const char* command, char** argv, int maxprocs, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* newcomm, "
                   "int* errcodes"),
    ("Comm_spawn_multiple", "int count, char** commands, char*** argv, const int* maxprocs, const MPI_Info* info, int root, "
                            "MPI_Comm comm, MPI_Comm* newcomm, int* errcodes"),
    ("Comm_accept", "const char* port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* newcomm"),
    ("Comm_connect", "const char* port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* newcomm"),
    ("Cart_sub", "MPI_Comm comm, const int* remain_dims, MPI_Comm* newcomm"),
    ("Graph_create", "MPI_Comm comm, int nnodes, const int* index, const int* edges, int reorder, MPI_Comm* newcomm"),
    ("Dist_graph_create", "MPI_Comm comm, int n, const int* sources, const int* degrees, const int* destinations, "
                          "const int* weights, MPI_Info info, int reorder, MPI_Comm* newcomm"),
    ("Dist_graph_create_adjacent", "MPI_Comm comm, int indegree, const int* sources, const int* sourceweights, int outdegree, "
                                   "const int* destinations, const int* destweights, MPI_Info info, int reorder, "
                                   "MPI_Comm* newcomm"),
]
LATE_CREATORS = [
    ("Comm_idup", "MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request"),
    ("Comm_idup_with_info", "MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm, MPI_Request* request"),
]
# Calls of all members that open something, which has calls of all members of its own: what, name, parameters.
OPENINGS = [
    ("window", "Win_create", "void* base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win"),
    ("window", "Win_create_dynamic", "MPI_Info info, MPI_Comm comm, MPI_Win* win"),
    ("window", "Win_allocate", "MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win"),
    ("window", "Win_allocate_shared", "MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win"),
    ("file", "File_open", "MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* fh"),
]
ON_FILES = [
    ("File_sync", ""),
    ("File_set_size", "MPI_Offset size"),
    ("File_preallocate", "MPI_Offset size"),
    ("File_set_atomicity", "int flag"),
    ("File_set_view", "MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char* datarep, MPI_Info info"),
    ("File_seek_shared", "MPI_Offset offset, int whence"),
]
for what, buffer in (("read", "void* buf"), ("write", "const void* buf")):
    for way, offset in (("all", ""), ("at_all", "MPI_Offset offset, "), ("ordered", "")):
        data = f"{offset}{buffer}, int count, MPI_Datatype datatype"
        ON_FILES += [(f"File_{what}_{way}", data + ", MPI_Status* status"), (f"File_{what}_{way}_begin", data),
                     (f"File_{what}_{way}_end", f"{buffer}, MPI_Status* status")]
        if way != "ordered":
            ON_FILES.append((f"File_i{what}_{way}", data + ", MPI_Request* request"))
BY_HAND = ["Init", "Init_thread", "Finalize", "Sendrecv", "Sendrecv_replace", "Wait", "Waitall", "Waitany", "Waitsome", "Test",
           "Testall", "Testany", "Testsome", "Request_free", "Mrecv", "Sendrecv_c", "Sendrecv_replace_c", "Mrecv_c", "Start", "Startall",
           "Comm_create_group", "Intercomm_create"]

names: list[str] = []
text: list[str] = []


def with_info(parameters: str) -> str:
    return with_more(parameters, "MPI_Comm comm, MPI_Info info, MPI_Request* request")


def arguments(parameters: str) -> str:
    return ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))


def narrowed(parameters: str) -> str:
    """The arguments of a call with large counts as those of the call with small ones."""
    out = []
    for parameter in parameters.split(", "):
        name = parameter.split()[-1]
        if re.match(r"MPI_Count \w+$", parameter):
            out.append(f"narrow({name})")
        elif re.match(r"const MPI_Count\* ", parameter) or (re.match(r"const MPI_Aint\* ", parameter) and "w_aint" not in parameter):
            out.append(f"narrow.{'sent' if name.startswith('s') else 'got'}({name})")
        else:
            out.append(name)
    return ", ".join(out)


def without_large_counts(name: str, parameters: str) -> str:
    """What the wrapper of a call with large counts does where MPI has none: the small call's wrapper."""
    small = name.removesuffix("_c")
    arrays = "const MPI_Count*" in parameters
    lengths = "of_neighbors" if "eighbor" in name else "of_own_group" if "educe_scatter" in name else "of_members"
    kept = "for_good" if "MPI_Request*" in parameters else "for_the_call"
    made = f"Narrow narrow{f'(Lengths::{lengths}(comm), Narrow::Kept::{kept})' if arrays else ''};"
    # The displacements of this one are large in both.
    told = parameters.replace("MPI_Aint*", "w_aint MPI_Aint*") if "eighbor_alltoallw" in name else parameters
    return (f"  if (is_missing<&MPI_{name}>(\"PMPI_{name}\")) {{\n    {made}\n"
            f"    return narrow.call(&MPI_{small}, {narrowed(told)});\n  }}\n")


def wrap(name: str, parameters: str, traced: str, end: str, prefix: str = "MPI", before: str = "") -> None:
    full = f"{prefix}_{name}"
    names.append(full.removeprefix("MPI"))
    before = f"  {before}\n" if before else without_large_counts(name, parameters) if name.endswith("_c") else ""
    call = f"call_real<&{full}>(\"P{full}\", {arguments(parameters)})"
    text.append(f"int {full}({parameters}) {{\n{before}  Traced call({traced});\n  return {end.replace('CALL', call)};\n}}\n")


def variants(name: str, parameters: str, traced: str, end: str) -> None:
    """The call, and the one with large counts if it has any."""
    small = parameters.replace("DISPL", "int")
    wrap(name, small, traced, end)
    large = re.sub(r"\bint\* (\w*counts)", r"MPI_Count* \1", parameters.replace("DISPL", "MPI_Aint"))
    large = re.sub(r"\bint (\w*count)\b", r"MPI_Count \1", large)
    if large != parameters.replace("DISPL", "int"):
        wrap(f"{name}_c", large, traced, end)


def with_more(parameters: str, more: str) -> str:
    return f"{parameters}, {more}" if parameters else more


for name, parameters, operation, (count, kind, root, reduction) in COLLECTIVES:
    traced = f"OfAll{{comm, {operation}, {root}}}, Data{{{count}, {kind}, {reduction}}}"
    variants(name, with_more(parameters, "MPI_Comm comm"), "Blocking{}, " + traced, "call.ended(CALL)")
    variants(f"I{name.lower()}", with_more(parameters, "MPI_Comm comm, MPI_Request* request"), "Posted{}, " + traced,
             "call.posted(CALL, request)")
    variants(f"{name}_init", with_info(parameters), "Persistent{}, " + traced, "call.prepared(CALL, request)")
    # Open MPI 4 has them as an extension, from before MPI 4.0.
    wrap(f"{name}_init", with_info(parameters).replace("DISPL", "int"), "Persistent{}, " + traced, "call.prepared(CALL, request)",
         prefix="MPIX")
for name in SENDS:
    traced = "OfTwo{comm, Operation::send, dest, tag}, Data{count, datatype, no_op()}"
    variants(name, MESSAGE, "Blocking{}, " + traced, "call.ended(CALL)")
    variants(f"I{name.lower()}", MESSAGE + ", MPI_Request* request", "Posted{}, " + traced, "call.posted(CALL, request)")
received = "OfTwo{comm, Operation::recv, source, tag}, Data{count, datatype, no_op()}"
variants("Recv", RECEIPT + ", MPI_Status* status", "Blocking{}, " + received, "call.ended(CALL)")
variants("Irecv", RECEIPT + ", MPI_Request* request", "Posted{}, " + received, "call.posted(CALL, request)")
for name in SENDS:
    made = "Persistent{}, OfTwo{comm, Operation::send, dest, tag}, Data{count, datatype, no_op()}"
    variants(f"{name}_init", MESSAGE + ", MPI_Request* request", made, "call.prepared(CALL, request)")
variants("Recv_init", RECEIPT + ", MPI_Request* request", "Persistent{}, " + received, "call.prepared(CALL, request)")
probed = "Blocking{}, OfTwo{comm, other::probe, source, tag}, Data{0, no_type(), no_op()}"
wrap("Probe", "int source, int tag, MPI_Comm comm, MPI_Status* status", probed, "call.ended(CALL)")
wrap("Mprobe", "int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status", probed, "call.ended(CALL)")
all_of = "OfAll{comm, other::%s, -1}, Data{0, no_type(), no_op()}"
for name, parameters in CREATORS:
    wrap(name, parameters, "Blocking{}, " + all_of % "create", "call.made(CALL, newcomm)")
for name, parameters in LATE_CREATORS:
    wrap(name, parameters, "Posted{}, " + all_of % "create", "call.posted(CALL, request, newcomm)")
for what, name, parameters in OPENINGS:
    handle = "fh" if what == "file" else "win"
    wrap(name, parameters, "Blocking{}, " + all_of % "one_sided", f'call.opened(CALL, {handle}, "{what}")')
for name, parameters in ON_FILES:
    data = "Data{count, datatype, no_op()}" if "MPI_Datatype datatype" in parameters else "Data{0, no_type(), no_op()}"
    how, end = ("Posted", "call.posted(CALL, request)") if "request" in parameters else ("Blocking", "call.ended(CALL)")
    traced = f"{how}{{}}, OfOpened{{key_of(fh), other::file_io}}, {data}"
    variants(name, "MPI_File fh" + (", " + parameters if parameters else ""), traced, end)
wrap("File_close", "MPI_File* fh", "Blocking{}, OfOpened{key_of(*fh), other::file_io}, Data{0, no_type(), no_op()}",
     "call.closed(CALL, handle)", before="const auto handle = key_of(*fh);")
on_window = "Blocking{}, OfOpened{key_of(%s), other::window}, Data{0, no_type(), no_op()}"
wrap("Win_fence", "int assertion, MPI_Win win", on_window % "win", "call.ended(CALL)")
wrap("Win_free", "MPI_Win* win", on_window % "*win", "call.closed(CALL, handle)", before="const auto handle = key_of(*win);")

HEAD = "// Written by generate.py; do not edit.\n"
FILES = {
    "wrapped_calls.inc": HEAD + "\n" + "\n".join(text),
    "function_names.inc": HEAD + "".join(f"X({name})\n" for name in sorted({*names, *(f"_{name}" for name in BY_HAND)})),
}
stale = [name for name, content in FILES.items() if not (HERE / name).is_file() or (HERE / name).read_text() != content]
if "--check" in sys.argv:
    sys.exit(f"out of date: {', '.join(stale)}: run {__file__}" if stale else 0)
for name in stale:
    (HERE / name).write_text(FILES[name])
