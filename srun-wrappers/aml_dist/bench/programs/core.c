#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, INT16, UINT16, TYPES };
enum { SUM, PROD, MAX, MIN, AVG };

static const char* const op_names[BENCH_OPS] = {"allreduce", "reduce", "broadcast", "allgather", "reduce_scatter",
                                                "alltoall",  "gather", "scatter",   "sendrecv",  "barrier"};
static const size_t type_sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 2, 2};

/* Buffers that a request cycles through when it must not find its data in a cache. */
enum { MOST_BUFFERS = 4096 };
static const size_t beyond_caches = (size_t)256 << 20;

const char* bench_op_name(int op) { return op >= 0 && op < BENCH_OPS ? op_names[op] : NULL; }

size_t bench_type_size(int type) { return type >= 0 && type < TYPES ? type_sizes[type] : 0; }

static int is_split(int op) {
  return op == BENCH_ALLGATHER || op == BENCH_REDUCE_SCATTER || op == BENCH_ALLTOALL || op == BENCH_GATHER ||
         op == BENCH_SCATTER;
}

uint64_t bench_count(int op, uint64_t bytes, int type, int size) {
  const uint64_t elements = bytes / bench_type_size(type);
  if (op == BENCH_BARRIER) return 0;
  return is_split(op) ? elements / (uint64_t)size : elements;
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* ---- values that add up exactly ---- */

/* IEEE binary16 and bfloat16 of a small whole number, exact up to 2048 and 256. */
static uint16_t to_half(float value, int is_bfloat) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (is_bfloat) return (uint16_t)(bits >> 16);
  if (value == 0) return 0;
  const uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
  return (uint16_t)((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

static void put(void* buffer, size_t i, int type, int value) {
  switch (type) {
    case INT8:
      ((int8_t*)buffer)[i] = (int8_t)value;
      return;
    case UINT8:
      ((uint8_t*)buffer)[i] = (uint8_t)value;
      return;
    case INT16:
      ((int16_t*)buffer)[i] = (int16_t)value;
      return;
    case UINT16:
      ((uint16_t*)buffer)[i] = (uint16_t)value;
      return;
    case INT32:
      ((int32_t*)buffer)[i] = value;
      return;
    case UINT32:
      ((uint32_t*)buffer)[i] = (uint32_t)value;
      return;
    case INT64:
      ((int64_t*)buffer)[i] = value;
      return;
    case UINT64:
      ((uint64_t*)buffer)[i] = (uint64_t)value;
      return;
    case FLOAT32:
      ((float*)buffer)[i] = (float)value;
      return;
    case FLOAT64:
      ((double*)buffer)[i] = value;
      return;
    default:
      ((uint16_t*)buffer)[i] = to_half((float)value, type == BFLOAT16);
      return;
  }
}

/* The largest number, up to 3, whose sum over all ranks the type still holds: an average is a sum that is divided. */
static int highest_to_average(int type, int size) {
  const int largest = type == INT8 ? 127 : type == UINT8 || type == BFLOAT16 ? 255 : 2047;
  return largest / size < 3 ? largest / size : 3;
}

/* What rank `rank` gives at place `i`: small whole numbers, of which sums (up to 50 ranks in bfloat16), products and
 * averages are exact in every type. */
static int input(const struct bench_request* request, int rank, int size, size_t i) {
  const size_t place = i % 1021; /* a prime: shifted data does not fit by chance */
  if (request->redop == PROD) return place % (size_t)size == (size_t)rank ? 2 : 1;
  if (request->redop == AVG) return (int)(place % (size_t)(highest_to_average(request->type, size) + 1));
  return (int)((place + (size_t)rank * 3) % 5);
}

static int reduced(const struct bench_request* request, int size, size_t i) {
  const int redop = request->redop;
  if (redop == PROD || redop == AVG) return redop == PROD ? 2 : input(request, 0, size, i);
  int result = input(request, 0, size, i);
  for (int rank = 1; rank < size; ++rank) {
    const int value = input(request, rank, size, i);
    if (redop == SUM) result += value;
    if (redop == MAX && value > result) result = value;
    if (redop == MIN && value < result) result = value;
  }
  return result;
}

/* ---- buffers ---- */

/* Where a rank's input and output lie, in elements, and how long they are. In place both are in one array. */
struct shape {
  size_t count;
  size_t send_length;
  size_t recv_length;
  size_t send_at; /* in place: offset of the input in the output's array, or of the output in the input's */
  size_t recv_at;
  size_t whole;
};

static struct shape shape_of(const struct bench_library* library, const struct bench_request* request) {
  const size_t count = (size_t)bench_count(request->op, request->bytes, request->type, library->size);
  const size_t all = count * (size_t)library->size;
  const size_t own = count * (size_t)library->rank;
  struct shape shape = {count, count, count, 0, 0, count};
  switch (request->op) {
    case BENCH_ALLGATHER:
    case BENCH_GATHER:
      shape.recv_length = shape.whole = all;
      shape.send_at = own;
      break;
    case BENCH_REDUCE_SCATTER:
    case BENCH_SCATTER:
      shape.send_length = shape.whole = all;
      shape.recv_at = own;
      break;
    case BENCH_ALLTOALL:
      shape.send_length = shape.recv_length = shape.whole = all;
      break;
    default:
      break;
  }
  return shape;
}

struct buffers {
  const struct bench_library* library;
  int from_library;
  size_t sets;
  char* send[MOST_BUFFERS];
  char* recv[MOST_BUFFERS];
  void* owned[2 * MOST_BUFFERS];
  size_t owned_count;
};

static void* take(struct buffers* buffers, size_t bytes) {
  void* memory = NULL;
  if (buffers->from_library) memory = buffers->library->allocate(buffers->library->state, bytes);
  else if (posix_memalign(&memory, 4096, bytes) != 0) memory = NULL;
  if (memory == NULL) return NULL;
  memset(memory, 0, bytes);
  buffers->owned[buffers->owned_count++] = memory;
  return memory;
}

static void give_back(struct buffers* buffers) {
  for (size_t i = 0; i < buffers->owned_count; ++i) {
    if (buffers->from_library) buffers->library->release(buffers->library->state, buffers->owned[i]);
    else free(buffers->owned[i]);
  }
  free(buffers);
}

static struct buffers* make_buffers(const struct bench_library* library, const struct bench_request* request,
                                    const struct shape* shape) {
  const size_t element = bench_type_size(request->type);
  const size_t bytes = shape->whole * element + 64; /* never an empty allocation */
  struct buffers* buffers = calloc(1, sizeof *buffers);
  if (buffers == NULL) return NULL;
  buffers->library = library;
  buffers->from_library = request->own_memory && library->allocate != NULL;
  buffers->sets = 1;
  if (request->off_cache) {
    const size_t wanted = beyond_caches / (2 * bytes) + 1;
    buffers->sets = wanted < MOST_BUFFERS ? wanted : MOST_BUFFERS;
  }
  for (size_t i = 0; i < buffers->sets; ++i) {
    char* first = take(buffers, bytes);
    char* second = first != NULL && !request->in_place ? take(buffers, bytes) : first;
    if (first == NULL || second == NULL) {
      give_back(buffers);
      return NULL;
    }
    buffers->send[i] = request->in_place ? first + shape->send_at * element : first;
    buffers->recv[i] = request->in_place ? second + shape->recv_at * element : second;
  }
  return buffers;
}

static void fill(const struct bench_library* library, const struct bench_request* request, const struct shape* shape,
                 char* send) {
  for (size_t i = 0; i < shape->send_length; ++i) {
    put(send, i, request->type, input(request, library->rank, library->size, i));
  }
}

/* ---- checking ---- */

static int gets_a_result(const struct bench_library* library, int op) {
  return (op != BENCH_REDUCE && op != BENCH_GATHER) || library->rank == 0;
}

/* What stands at place `i` of this rank's result. */
static int expected(const struct bench_library* library, const struct bench_request* request, size_t count, size_t i) {
  const int size = library->size, rank = library->rank;
  const size_t piece = count != 0 ? i / count : 0, place = count != 0 ? i % count : 0;
  switch (request->op) {
    case BENCH_ALLREDUCE:
    case BENCH_REDUCE:
      return reduced(request, size, i);
    case BENCH_REDUCE_SCATTER:
      return reduced(request, size, (size_t)rank * count + i);
    case BENCH_BROADCAST:
      return input(request, 0, size, i);
    case BENCH_SCATTER:
      return input(request, 0, size, (size_t)rank * count + i);
    case BENCH_ALLTOALL:
      return input(request, (int)piece, size, (size_t)rank * count + place);
    case BENCH_SENDRECV:
      return input(request, (rank + size - 1) % size, size, i);
    default:
      return input(request, (int)piece, size, place); /* gathers */
  }
}

static uint64_t count_wrong(const struct bench_library* library, const struct bench_request* request,
                            const struct shape* shape, const char* whole_result) {
  const size_t element = bench_type_size(request->type);
  uint64_t wrong = 0;
  if (!gets_a_result(library, request->op)) return 0;
  for (size_t i = 0; i < shape->recv_length; ++i) {
    char right[8];
    put(right, 0, request->type, expected(library, request, shape->count, i));
    if (memcmp(right, whole_result + i * element, element) != 0) ++wrong;
  }
  return wrong;
}

/* ---- measuring ---- */

static struct bench_call call_on(const struct bench_request* request, const struct shape* shape,
                                 const struct buffers* buffers, size_t set) {
  struct bench_call call = {request->op,  request->type,      request->redop,
                            shape->count, buffers->send[set], buffers->recv[set]};
  if (request->op == BENCH_BROADCAST) call.recv = buffers->send[set]; /* always in place */
  return call;
}

static struct bench_result check(const struct bench_library* library, const struct bench_request* request,
                                 const struct shape* shape, const struct buffers* buffers) {
  struct bench_result result = {0, 0, BENCH_FINE};
  fill(library, request, shape, buffers->send[0]);
  const struct bench_call call = call_on(request, shape, buffers, 0);
  result.status = library->run(library->state, &call);
  if (result.status != BENCH_FINE || request->op == BENCH_BARRIER) return result;
  result.wrong = count_wrong(library, request, shape, call.recv);
  return result;
}

/* Time of `iterations` rounds: of the calls, or only of writing the inputs anew. */
static double loop(const struct bench_library* library, const struct bench_request* request, const struct shape* shape,
                   const struct buffers* buffers, int calls, int* status) {
  const size_t send_bytes = shape->send_length * bench_type_size(request->type);
  const double start = now_us();
  for (uint64_t i = 0; i < request->iterations && *status == BENCH_FINE; ++i) {
    const size_t set = (size_t)(i % buffers->sets);
    if (request->rewrite) memset(buffers->send[set], 0, send_bytes);
    if (!calls) continue;
    const struct bench_call call = call_on(request, shape, buffers, set);
    *status = library->run(library->state, &call);
  }
  return now_us() - start;
}

static void time_calls(const struct bench_library* library, const struct bench_request* request,
                       const struct shape* shape, const struct buffers* buffers, struct bench_result* result) {
  double writing = 0;
  if (request->rewrite) writing = loop(library, request, shape, buffers, 0, &result->status);
  if (library->barrier(library->state) != BENCH_FINE) result->status = BENCH_FAILED;
  const double total = loop(library, request, shape, buffers, 1, &result->status);
  result->microseconds = (total > writing ? total - writing : 0) / (double)request->iterations;
}

struct bench_result bench_measure(const struct bench_library* library, const struct bench_request* request) {
  struct bench_result result = {0, 0, BENCH_FAILED};
  if (bench_op_name(request->op) == NULL || bench_type_size(request->type) == 0) return result;
  if (request->op == BENCH_SENDRECV && request->in_place) {
    result.status = BENCH_UNSUPPORTED;
    return result;
  }
  const struct shape shape = shape_of(library, request);
  struct buffers* buffers = make_buffers(library, request, &shape);
  if (buffers == NULL) {
    result.status = BENCH_NO_MEMORY;
    return result;
  }
  if (request->iterations == 0) {
    result = check(library, request, &shape, buffers);
  } else {
    result.status = BENCH_FINE;
    time_calls(library, request, &shape, buffers, &result);
  }
  give_back(buffers);
  return result;
}
