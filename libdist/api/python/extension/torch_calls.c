/* The calls of torch.distributed that most programs make most often, from Python to libdist without Python code
 * between: one dense tensor in the host's memory, a caller that waits, and the group's own deadline. Everything else
 * goes the package's usual way.
 *
 * Nothing here knows PyTorch's C++: tensors and options are asked by their Python interface. So one binary serves all
 * releases of PyTorch and, with the limited interface, all Pythons from 3.10. It is not linked with libdist either: the
 * package hands over the addresses of the functions in the library that it has loaded.
 *
 * Thread safety: that of the engine, whose lock is held during a call. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>

typedef int (*allreduce_function)(void*, const void*, void*, size_t, int, int);
typedef int (*broadcast_function)(void*, void*, size_t, int, int);
typedef int (*movement_function)(void*, const void*, void*, size_t, int);
typedef int (*barrier_function)(void*);

enum { MOST_TYPES = 32, MOST_OPERATORS = 16, TYPE_BOOL = 12 };
enum call { ALLREDUCE, BROADCAST, BARRIER, ALLGATHER, REDUCE_SCATTER, CALLS };

/* Set once, by install(). */
static struct {
  allreduce_function allreduce;
  broadcast_function broadcast;
  barrier_function barrier;
  movement_function allgather;
  allreduce_function reduce_scatter;
  PyObject *tensor, *parameter;                        /* the two classes that are taken */
  PyObject *strided, *unset;                           /* layout; the timeout that stands for the group's */
  PyObject *is_contiguous, *is_neg, *numel, *data_ptr; /* methods of the class */
  PyObject* fail;                                      /* raises what a status stands for, for an engine */
  PyObject* is_watched;                                /* whether a profiler or a mode wants to see calls */
  PyObject* bound;                                     /* the class of bound methods */
  PyObject* types[MOST_TYPES];                         /* dtypes, */
  int numbers[MOST_TYPES];                             /* and what libdist calls them */
  size_t sizes[MOST_TYPES];                            /* bytes of an element */
  int type_count;
  int operators[MOST_OPERATORS]; /* by PyTorch's number; -1: none */
  PyObject* usual[CALLS];        /* what takes all other calls */
} with;

static PyObject *n_engine, *n_handle, *n_lock, *n_acquire, *n_release, *n_calls, *n_deadline, *n_unset, *n_coalesced,
    *n_done, *n_gpu, *n_size, *n_async, *n_timeout, *n_reduce_op, *n_op, *n_root, *n_is_cpu, *n_layout, *n_dtype;

/* ---- asking Python ---- */
/* 1 or 0; -1 with an exception. */
static int has(PyObject* object, PyObject* name, PyObject* value) {
  PyObject* const got = PyObject_GetAttr(object, name);
  if (got == NULL) return -1;
  const int same = got == value;
  Py_DECREF(got);
  return same;
}

static int number_at(PyObject* object, PyObject* name, long* number) {
  PyObject* const got = PyObject_GetAttr(object, name);
  if (got == NULL) return -1;
  *number = PyLong_AsLong(got);
  Py_DECREF(got);
  return *number == -1 && PyErr_Occurred() != NULL ? -1 : 0;
}

static int asked(PyObject* method, PyObject* object, unsigned long long* number) {
  PyObject* const got = PyObject_CallFunctionObjArgs(method, object, NULL);
  if (got == NULL) return -1;
  *number = PyLong_AsUnsignedLongLong(got);
  Py_DECREF(got);
  return *number == (unsigned long long)-1 && PyErr_Occurred() != NULL ? -1 : 0;
}

/* Whether a method gives this constant; -1 with an exception. */
static int says(PyObject* method, PyObject* object, PyObject* answer) {
  PyObject* const got = PyObject_CallFunctionObjArgs(method, object, NULL);
  if (got == NULL) return -1;
  Py_DECREF(got);
  return got == answer;
}

/* ---- a call ---- */
struct buffer {
  void* data;
  size_t count, size;
  int type;
};

/* 1: a dense tensor in the host's memory; 0: another one; -1 with an exception. */
static int read_tensor(PyObject* tensor, struct buffer* buffer) {
  PyObject* const class = (PyObject*)Py_TYPE(tensor);
  if (class != with.tensor && class != with.parameter) return 0;
  int fits = has(tensor, n_is_cpu, Py_True);
  if (fits > 0) fits = has(tensor, n_layout, with.strided);
  if (fits <= 0) return fits;
  fits = says(with.is_contiguous, tensor, Py_True);
  if (fits > 0) fits = says(with.is_neg, tensor, Py_False); /* else memory holds other numbers than the tensor shows */
  if (fits <= 0) return fits;
  PyObject* const type = PyObject_GetAttr(tensor, n_dtype);
  if (type == NULL) return -1;
  Py_DECREF(type); /* dtypes live as long as PyTorch */
  int at = 0;
  while (at < with.type_count && with.types[at] != type) ++at;
  if (at == with.type_count) return 0;
  unsigned long long count, address;
  if (asked(with.numel, tensor, &count) < 0 || asked(with.data_ptr, tensor, &address) < 0) return -1;
  *buffer = (struct buffer){(void*)(uintptr_t)address, (size_t)count, with.sizes[at], with.numbers[at]};
  return 1;
}

/* The one tensor of a list. */
static int read_only_tensor(PyObject* list, struct buffer* buffer) {
  if (!PyList_Check(list) || PyList_Size(list) != 1) return 0;
  return read_tensor(PyList_GetItem(list, 0), buffer);
}

/* Whether the caller waits, with the group's own deadline, and nobody watches. */
static int is_ordinary(PyObject* engine, PyObject* options) {
  int fits = has(options, n_async, Py_False);
  if (fits <= 0) {
    if (fits < 0) PyErr_Clear(); /* an older PyTorch: all its calls are asynchronous */
    return 0;
  }
  PyObject* const timeout = PyObject_GetAttr(options, n_timeout);
  if (timeout == NULL) return -1;
  fits = PyObject_RichCompareBool(timeout, with.unset, Py_EQ);
  Py_DECREF(timeout);
  if (fits > 0) fits = has(engine, n_coalesced, Py_None);
  if (fits <= 0) return fits;
  PyObject* const deadline = PyObject_GetAttr(engine, n_deadline);
  if (deadline == NULL) return -1;
  fits = has(engine, n_unset, deadline);
  Py_DECREF(deadline);
  if (fits <= 0) return fits;
  PyObject* const watched = PyObject_CallObject(with.is_watched, NULL);
  if (watched == NULL) return -1;
  Py_DECREF(watched);
  return watched == Py_False;
}

/* PyTorch's operator as libdist's; -1: libdist has none; -2 with an exception. */
static int read_operator(PyObject* options) {
  PyObject* const how = PyObject_GetAttr(options, n_reduce_op);
  if (how == NULL) return -2;
  PyObject* kind = PyObject_GetAttr(how, n_op);
  Py_DECREF(how);
  if (kind == NULL) return -2;
  PyObject* const number = PyNumber_Long(kind);
  Py_DECREF(kind);
  if (number == NULL) return -2;
  const long at = PyLong_AsLong(number);
  Py_DECREF(number);
  return at >= 0 && at < MOST_OPERATORS ? with.operators[at] : -1;
}

static int count_call(PyObject* engine) {
  long calls;
  if (number_at(engine, n_calls, &calls) < 0) return -1;
  PyObject* const more = PyLong_FromLong(calls + 1);
  if (more == NULL) return -1;
  const int set = PyObject_SetAttr(engine, n_calls, more);
  Py_DECREF(more);
  return set;
}

struct arguments {
  enum call call;
  void* comm;
  struct buffer send, recv;
  int last; /* operator or root */
};

static int make_call(const struct arguments* a) {
  switch (a->call) {
    case ALLREDUCE:
      return with.allreduce(a->comm, a->send.data, a->recv.data, a->recv.count, a->recv.type, a->last);
    case BROADCAST:
      return with.broadcast(a->comm, a->recv.data, a->recv.count, a->recv.type, a->last);
    case ALLGATHER:
      return with.allgather(a->comm, a->send.data, a->recv.data, a->send.count, a->send.type);
    case REDUCE_SCATTER:
      return with.reduce_scatter(a->comm, a->send.data, a->recv.data, a->recv.count, a->recv.type, a->last);
    default:
      return with.barrier(a->comm);
  }
}

static PyObject* call_locked(PyObject* engine, struct arguments* arguments) {
  PyObject* const handle = PyObject_GetAttr(engine, n_handle);
  if (handle == NULL) return NULL;
  arguments->comm = handle == Py_None ? NULL : PyLong_AsVoidPtr(handle);
  Py_DECREF(handle);
  if (count_call(engine) < 0 || PyErr_Occurred() != NULL) return NULL;
  PyThreadState* const state = PyEval_SaveThread();
  const int status = make_call(arguments);
  PyEval_RestoreThread(state);
  if (status == 0) return PyObject_GetAttr(engine, n_done);
  PyObject* const number = PyLong_FromLong(status);
  PyObject* const none = number != NULL ? PyObject_CallFunctionObjArgs(with.fail, engine, number, NULL) : NULL;
  Py_XDECREF(number);
  return none; /* NULL: it raises */
}

static PyObject* call_under_lock(PyObject* engine, struct arguments* arguments) {
  PyObject* const lock = PyObject_GetAttr(engine, n_lock);
  if (lock == NULL) return NULL;
  PyObject* const taken = PyObject_CallMethodObjArgs(lock, n_acquire, NULL);
  PyObject* out = taken != NULL ? call_locked(engine, arguments) : NULL;
  if (taken != NULL) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(PyObject_CallMethodObjArgs(lock, n_release, NULL));
    PyErr_Restore(type, value, trace);
    Py_DECREF(taken);
  }
  Py_DECREF(lock);
  return out;
}

/* Fills in buffers and operator or root from the tensors of a call. 1: it can be made here; 0: not; -1 with an
 * exception. */
static int read_arguments(PyObject* engine, PyObject* const* given, PyObject* options, struct arguments* arguments) {
  long number = 0;
  int fits = 1;
  switch (arguments->call) {
    case ALLREDUCE:
    case BROADCAST:
      fits = read_only_tensor(given[0], &arguments->recv);
      arguments->send = arguments->recv;
      break;
    case ALLGATHER:
    case REDUCE_SCATTER:
      fits = read_tensor(given[0], &arguments->recv);
      if (fits > 0) fits = read_tensor(given[1], &arguments->send);
      if (fits <= 0) return fits;
      if (number_at(engine, n_size, &number) < 0) return -1;
      const size_t ranks = (size_t)number;
      const int gathers = arguments->call == ALLGATHER;
      const struct buffer *part = gathers ? &arguments->send : &arguments->recv,
                          *whole = gathers ? &arguments->recv : &arguments->send;
      if (part->type != whole->type || part->count * ranks != whole->count) return 0;
      break;
    default:
      fits = has(engine, n_gpu, Py_None); /* else the usual way waits for the GPU, too */
      break;
  }
  if (fits <= 0) return fits;
  const int moves = arguments->call == BROADCAST || arguments->call == ALLGATHER;
  if (moves && arguments->recv.type == TYPE_BOOL) return 0; /* the usual way moves bools as bytes: all ranks must */
  if (arguments->call == BROADCAST) {
    if (number_at(options, n_root, &number) < 0) return -1;
    arguments->last = (int)number;
  }
  if (arguments->call == ALLREDUCE || arguments->call == REDUCE_SCATTER) {
    arguments->last = read_operator(options);
    if (arguments->last < 0) return arguments->last == -1 ? 0 : -1;
  }
  return 1;
}

/* `given`: the group, then `wanted` arguments. */
static PyObject* direct_call(enum call call, Py_ssize_t wanted, PyObject* self, PyObject* given, PyObject* named) {
  if (PyTuple_Size(given) != wanted + 1 || named != NULL) return PyObject_Call(with.usual[call], given, named);
  PyObject* const engine = PyObject_GetAttr(self, n_engine);
  if (engine == NULL) return NULL;
  PyObject* items[3] = {NULL, NULL, NULL};
  for (Py_ssize_t i = 0; i < wanted; ++i) items[i] = PyTuple_GetItem(given, i + 1);
  PyObject* const options = items[wanted - 1];
  struct arguments arguments = {.call = call};
  int fits = is_ordinary(engine, options);
  if (fits > 0) fits = read_arguments(engine, items, options, &arguments);
  PyObject* out = NULL;
  if (fits == 0) out = PyObject_Call(with.usual[call], given, named);
  else if (fits > 0) out = call_under_lock(engine, &arguments);
  Py_DECREF(engine);
  return out;
}

/* ---- a method ---- */
/* What the class has: called with the group first, as a function in a class is. It is no function of C's, as PyTorch
 * takes those for its own and not for overrides. */
struct method {
  PyObject ob_base;
  enum call call;
  Py_ssize_t wanted; /* arguments */
};

static PyObject* method_call(PyObject* object, PyObject* given, PyObject* named) {
  const struct method* const method = (const struct method*)object;
  if (PyTuple_Size(given) < 1) return PyErr_Format(PyExc_TypeError, "a process group is missing");
  return direct_call(method->call, method->wanted, PyTuple_GetItem(given, 0), given, named);
}

static PyObject* method_bind(PyObject* method, PyObject* self, PyObject* class) {
  (void)class;
  if (self != NULL && self != Py_None) return PyObject_CallFunctionObjArgs(with.bound, method, self, NULL);
  Py_INCREF(method);
  return method;
}

static void method_free(PyObject* method) {
  PyTypeObject* const type = Py_TYPE(method);
  PyObject_Free(method);
  Py_DECREF(type);
}

static PyType_Slot method_slots[] = {{Py_tp_call, (void*)method_call},
                                     {Py_tp_descr_get, (void*)method_bind},
                                     {Py_tp_dealloc, (void*)method_free},
                                     {0, NULL}};
static PyType_Spec method_spec = {"amldist.torch._calls.Method", sizeof(struct method), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots};
static PyObject* method_type;

static PyObject* new_method(enum call call) {
  static const Py_ssize_t wanted[CALLS] = {2, 2, 1, 3, 3};
  struct method* const method = PyObject_New(struct method, (PyTypeObject*)method_type);
  if (method == NULL) return NULL;
  method->call = call;
  method->wanted = wanted[call];
  return (PyObject*)method;
}

/* ---- installation ---- */
static void* address_in(PyObject* addresses, const char* name) {
  PyObject* const number = PyDict_GetItemString(addresses, name);
  if (number == NULL) {
    PyErr_Format(PyExc_KeyError, "the address of %s", name);
    return NULL;
  }
  return PyLong_AsVoidPtr(number);
}

static PyObject* kept(PyObject* facts, const char* name) {
  PyObject* const got = PyDict_GetItemString(facts, name);
  if (got == NULL) PyErr_Format(PyExc_KeyError, "%s", name);
  Py_XINCREF(got);
  return got;
}

static int read_types(PyObject* types) {
  PyObject *type, *pair;
  Py_ssize_t at = 0;
  with.type_count = 0;
  while (PyDict_Next(types, &at, &type, &pair) && with.type_count < MOST_TYPES) {
    Py_INCREF(type);
    with.types[with.type_count] = type;
    with.numbers[with.type_count] = (int)PyLong_AsLong(PyTuple_GetItem(pair, 0));
    with.sizes[with.type_count] = (size_t)PyLong_AsLong(PyTuple_GetItem(pair, 1));
    ++with.type_count;
  }
  return PyErr_Occurred() != NULL ? -1 : 0;
}

static int read_operators(PyObject* operators) {
  PyObject *kind, *number;
  Py_ssize_t at = 0;
  for (int i = 0; i < MOST_OPERATORS; ++i) with.operators[i] = -1;
  while (PyDict_Next(operators, &at, &kind, &number)) {
    const long place = PyLong_AsLong(kind);
    if (place >= 0 && place < MOST_OPERATORS) with.operators[place] = (int)PyLong_AsLong(number);
  }
  return PyErr_Occurred() != NULL ? -1 : 0;
}

static int read_facts(PyObject* facts) {
  struct {
    const char* name;
    PyObject** place;
  } const objects[] = {{"tensor", &with.tensor},
                       {"parameter", &with.parameter},
                       {"strided", &with.strided},
                       {"unset", &with.unset},
                       {"is_contiguous", &with.is_contiguous},
                       {"is_neg", &with.is_neg},
                       {"numel", &with.numel},
                       {"data_ptr", &with.data_ptr},
                       {"fail", &with.fail},
                       {"is_watched", &with.is_watched},
                       {"bound", &with.bound}};
  for (size_t i = 0; i < sizeof objects / sizeof *objects; ++i) {
    if ((*objects[i].place = kept(facts, objects[i].name)) == NULL) return -1;
  }
  PyObject *const types = kept(facts, "types"), *const operators = kept(facts, "operators");
  const int read = types != NULL && operators != NULL && read_types(types) == 0 && read_operators(operators) == 0;
  Py_XDECREF(types);
  Py_XDECREF(operators);
  return read ? 0 : -1;
}

static int read_addresses(PyObject* addresses) {
  with.allreduce = (allreduce_function)address_in(addresses, "allreduce");
  with.broadcast = (broadcast_function)address_in(addresses, "broadcast");
  with.barrier = (barrier_function)address_in(addresses, "barrier");
  with.allgather = (movement_function)address_in(addresses, "allgather");
  with.reduce_scatter = (allreduce_function)address_in(addresses, "reduce_scatter");
  return PyErr_Occurred() != NULL ? -1 : 0;
}

/* install(class, names, addresses, facts): replaces methods of the class; `names` maps each to one of the five calls.
 */
static PyObject* install(PyObject* module, PyObject* given) {
  PyObject* class, *names, *addresses, *facts, *name, *call;
  Py_ssize_t at = 0;
  (void)module;
  if (!PyArg_ParseTuple(given, "OOOO", &class, &names, &addresses, &facts)) return NULL;
  if (read_addresses(addresses) < 0 || read_facts(facts) < 0) return NULL;
  while (PyDict_Next(names, &at, &name, &call)) {
    const long number = PyLong_AsLong(call);
    if (number < 0 || number >= CALLS) return PyErr_Format(PyExc_ValueError, "%ld is not a call", number);
    PyObject* const usual = PyObject_GetAttr(class, name);
    PyObject* const method = new_method((enum call)number);
    if (usual == NULL || method == NULL || PyObject_SetAttr(class, name, method) < 0) return NULL;
    Py_XDECREF(with.usual[number]);
    with.usual[number] = usual;
    Py_DECREF(method);
  }
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"install", install, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_calls", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__calls(void) {
  struct {
    PyObject** place;
    const char* name;
  } const names[] = {
      {&n_engine, "engine"},        {&n_handle, "_handle"},  {&n_lock, "_lock"},         {&n_acquire, "acquire"},
      {&n_release, "release"},      {&n_calls, "calls"},     {&n_deadline, "_deadline"}, {&n_unset, "_unset"},
      {&n_coalesced, "_coalesced"}, {&n_done, "_done"},      {&n_gpu, "_gpu"},           {&n_size, "size"},
      {&n_async, "asyncOp"},        {&n_timeout, "timeout"}, {&n_reduce_op, "reduceOp"}, {&n_op, "op"},
      {&n_root, "rootRank"},        {&n_is_cpu, "is_cpu"},   {&n_layout, "layout"},      {&n_dtype, "dtype"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if ((*names[i].place = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
  }
  method_type = PyType_FromSpec(&method_spec);
  return method_type != NULL ? PyModule_Create(&definition) : NULL;
}
