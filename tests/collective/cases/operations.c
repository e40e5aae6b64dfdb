/* Every operation on every type, operator and a list of sizes, in and out of place, against plain loops over what every
 * rank is known to have. Inputs are small whole numbers, so that every type holds every result exactly. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

static const size_t element_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 2, 2, 1};
enum { TYPES = 12, OPS = 5 }; /* with numbers; bits and bools: check_bits() */

/* ---- numbers of every type ---- */
static uint16_t half_of(double value) { /* exact for the small whole numbers used here */
  if (value == 0) return 0;
  int exponent;
  const double mantissa = frexp(fabs(value), &exponent);
  const uint16_t bits = (uint16_t)(((exponent + 14) << 10) | ((int)(mantissa * 2048) & 0x3ff));
  return (uint16_t)(value < 0 ? bits | 0x8000 : bits);
}

static uint16_t bfloat_of(double value) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void put(void* buffer, size_t i, amldist_type type, double value) {
  switch (type) {
    case AMLDIST_INT8:
      ((int8_t*)buffer)[i] = (int8_t)value;
      break;
    case AMLDIST_UINT8:
      ((uint8_t*)buffer)[i] = (uint8_t)value;
      break;
    case AMLDIST_INT16:
      ((int16_t*)buffer)[i] = (int16_t)value;
      break;
    case AMLDIST_UINT16:
      ((uint16_t*)buffer)[i] = (uint16_t)value;
      break;
    case AMLDIST_BOOL:
      ((unsigned char*)buffer)[i] = (unsigned char)((int)value % 2);
      break;
    case AMLDIST_INT32:
      ((int32_t*)buffer)[i] = (int32_t)value;
      break;
    case AMLDIST_UINT32:
      ((uint32_t*)buffer)[i] = (uint32_t)value;
      break;
    case AMLDIST_INT64:
      ((int64_t*)buffer)[i] = (int64_t)value;
      break;
    case AMLDIST_UINT64:
      ((uint64_t*)buffer)[i] = (uint64_t)value;
      break;
    case AMLDIST_FLOAT16:
      ((uint16_t*)buffer)[i] = half_of(value);
      break;
    case AMLDIST_BFLOAT16:
      ((uint16_t*)buffer)[i] = bfloat_of(value);
      break;
    case AMLDIST_FLOAT32:
      ((float*)buffer)[i] = (float)value;
      break;
    case AMLDIST_FLOAT64:
      ((double*)buffer)[i] = value;
      break;
  }
}

/* What rank r has at position i. Products stay within a byte: at most three ranks have a 2, the others a 1. */
static double given(int r, size_t i, amldist_op op) {
  if (op == AMLDIST_PROD) return ((size_t)r + i) % 3 == 0 && r < 6 ? 2 : 1;
  return (double)((i * 7 + (size_t)r * 3) % 11);
}

static double combined(size_t i, amldist_op op, amldist_type type) {
  double result = given(0, i, op);
  for (int r = 1; r < size; ++r) {
    const double next = given(r, i, op);
    if (op == AMLDIST_PROD) result *= next;
    else if (op == AMLDIST_MAX) result = fmax(result, next);
    else if (op == AMLDIST_MIN) result = fmin(result, next);
    else result += next;
  }
  if (op != AMLDIST_AVG) return result;
  const int whole =
      type != AMLDIST_FLOAT16 && type != AMLDIST_BFLOAT16 && type != AMLDIST_FLOAT32 && type != AMLDIST_FLOAT64;
  return whole ? floor(result / size) : result / size;
}

static double nearest_half(double value) { /* the float16 nearest to a positive value between 2^-14 and 2^15 */
  int exponent;
  const double mantissa = frexp(value, &exponent);
  return value == 0 ? 0 : ldexp(nearbyint(mantissa * 2048), exponent - 11);
}
static double nearest_bfloat(double value) {
  int exponent;
  const double mantissa = frexp(value, &exponent);
  return value == 0 ? 0 : ldexp(nearbyint(mantissa * 256), exponent - 8);
}
static double as_stored(double value, amldist_type type) {
  if (type == AMLDIST_FLOAT16) return nearest_half((double)(float)value);
  if (type == AMLDIST_BFLOAT16) return nearest_bfloat((double)(float)value);
  return value;
}

/* ---- buffers ---- */
/* With guard bytes on both sides, and aligned only to the element. */
typedef struct {
  unsigned char *base, *data;
  size_t bytes, allocated;
} buffer;
enum { MARGIN = 64, GUARD = 0xa5, KEPT = 8 };

/* Buffers that were freed, for the next ones: fresh pages would take longer than the calls, and most of all with a
 * sanitizer. It is told what of them is nobody's: the margins, and all of those that nobody has. */
static buffer kept_buffers[KEPT];
static buffer unused_buffer(size_t bytes) { /* of at least `bytes`, its contents undefined */
  for (buffer* kept = kept_buffers; kept < kept_buffers + KEPT; ++kept) {
    if (kept->base == NULL || kept->allocated < bytes) continue;
    const buffer found = *kept;
    ASAN_UNPOISON_MEMORY_REGION(found.base, found.allocated);
    kept->base = NULL;
    return found;
  }
  const buffer fresh = {malloc(bytes), NULL, 0, bytes};
  CHECK(fresh.base != NULL);
  return fresh;
}
static void keep_buffer(buffer b) { /* instead of a shorter one where there is no place */
  ASAN_POISON_MEMORY_REGION(b.base, b.allocated);
  for (buffer* kept = kept_buffers; kept < kept_buffers + KEPT; ++kept) {
    if (kept->base != NULL && kept->allocated >= b.allocated) continue;
    const buffer shorter = *kept;
    *kept = b, b = shorter;
    if (b.base == NULL) return;
  }
  ASAN_UNPOISON_MEMORY_REGION(b.base, b.allocated);
  free(b.base);
}
static buffer new_buffer(size_t bytes, size_t shift) {
  buffer b = unused_buffer(bytes + 2 * MARGIN + shift);
  memset(b.base, GUARD, bytes + 2 * MARGIN + shift);
  b.data = b.base + MARGIN + shift, b.bytes = bytes;
  ASAN_POISON_MEMORY_REGION(b.base, MARGIN + shift);
  ASAN_POISON_MEMORY_REGION(b.data + bytes, MARGIN);
  return b;
}
static void free_buffer(buffer b) {
  ASAN_UNPOISON_MEMORY_REGION(b.base, b.allocated);
  for (unsigned char* p = b.base; p < b.data; ++p) CHECK(*p == GUARD);
  for (int i = 0; i < MARGIN; ++i) CHECK(b.data[b.bytes + (size_t)i] == GUARD);
  keep_buffer(b);
}
static void expect(const void* got, const void* want, size_t bytes, const char* what, size_t count, amldist_type type,
                   int variant) {
  if (memcmp(got, want, bytes) == 0) return;
  size_t at = 0;
  while (((const char*)got)[at] == ((const char*)want)[at]) ++at;
  fprintf(stderr, "rank %d of %d: %s of %zu elements, type %d, variant %d: byte %zu of %zu is wrong\n", rank, size,
          what, count, (int)type, variant, at, bytes);
  exit(1);
}

enum {
  PERIOD = 33,
  BITS_PERIOD = 1024
}; /* after so many elements given() repeats, and after so many bytes bits_of() */
static size_t at_most(size_t count, size_t most) { return count < most ? count : most; }

/* Continues what is written, whole periods, up to `bytes`. */
static void repeat(void* data, size_t written, size_t bytes) {
  for (size_t more; written < bytes; written += more) {
    more = at_most(written, bytes - written);
    memcpy((char*)data + written, data, more);
  }
}

static void fill(void* data, size_t from, size_t count, int r, amldist_type type, amldist_op op) {
  const size_t first = at_most(count, PERIOD), unit = element_bytes[type];
  for (size_t i = 0; i < first; ++i) put(data, i, type, given(r, from + i, op));
  repeat(data, first * unit, count * unit);
}
static void fill_combined(void* data, size_t from, size_t count, amldist_type type, amldist_op op) {
  const size_t first = at_most(count, PERIOD), unit = element_bytes[type];
  for (size_t i = 0; i < first; ++i) put(data, i, type, as_stored(combined(from + i, op, type), type));
  repeat(data, first * unit, count * unit);
}

/* ---- reductions ---- */
static void check_allreduce(size_t count, amldist_type type, amldist_op op, int in_place) {
  const size_t unit = element_bytes[type];
  buffer send = new_buffer(count * unit, unit), recv = new_buffer(count * unit, 0), want = new_buffer(count * unit, 0);
  fill(send.data, 0, count, rank, type, op);
  fill_combined(want.data, 0, count, type, op);
  void* to = in_place ? send.data : recv.data;
  OK(amldist_allreduce(world, send.data, to, count, type, op));
  expect(to, want.data, count * unit, in_place ? "allreduce in place" : "allreduce", count, type, (int)op);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* With library-allocated buffers on all ranks, or only on those whose bit is set. */
static void check_allocated(size_t count, amldist_type type, unsigned who, int in_place) {
  const size_t unit = element_bytes[type];
  void *send, *recv;
  buffer want = new_buffer(count * unit, 0);
  if (who >> rank & 1) {
    OK(amldist_alloc(world, count * unit + 128, &send));
    OK(amldist_alloc(world, count * unit, &recv));
    for (size_t i = 0; i < count * unit; i += 512) CHECK(((unsigned char*)recv)[i] == 0);
  } else {
    CHECK((send = malloc(count * unit + 128)) != NULL && (recv = malloc(count * unit + 1)) != NULL);
  }
  void *from = (unsigned char*)send + 64, *to = in_place ? from : recv;
  fill(from, 0, count, rank, type, AMLDIST_AVG);
  fill_combined(want.data, 0, count, type, AMLDIST_AVG);
  OK(amldist_allreduce(world, from, to, count, type, AMLDIST_AVG));
  expect(to, want.data, count * unit, "allreduce of allocated buffers", count, type, (int)who);
  if (who >> rank & 1) {
    OK(amldist_barrier(world));
    OK(amldist_free(world, send));
    OK(amldist_free(world, recv));
    CHECK(amldist_free(world, recv) == AMLDIST_EINVAL);
  } else {
    OK(amldist_barrier(world));
    free(send), free(recv);
  }
  free_buffer(want);
}

static void check_reduce(size_t count, amldist_type type, amldist_op op, int in_place, int root) {
  const size_t unit = element_bytes[type];
  buffer send = new_buffer(count * unit, 0), recv = new_buffer(count * unit, unit), want = new_buffer(count * unit, 0);
  fill(send.data, 0, count, rank, type, op);
  fill_combined(want.data, 0, count, type, op);
  void* to = in_place ? send.data : recv.data;
  OK(amldist_reduce(world, send.data, rank == root ? to : NULL, count, type, op, root));
  if (rank == root) expect(to, want.data, count * unit, "reduce", count, type, (int)op);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

static void check_reduce_scatter(size_t count, amldist_type type, amldist_op op, int in_place) {
  const size_t unit = element_bytes[type], all = count * (size_t)size, own = count * (size_t)rank;
  buffer send = new_buffer(all * unit, 0), recv = new_buffer(count * unit, unit), want = new_buffer(count * unit, 0);
  fill(send.data, 0, all, rank, type, op);
  fill_combined(want.data, own, count, type, op);
  void* to = in_place ? send.data + own * unit : recv.data;
  OK(amldist_reduce_scatter(world, send.data, to, count, type, op));
  expect(to, want.data, count * unit, "reduce_scatter", count, type, (int)op);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* Rank r gets `count` / (r + 1) elements, with a gap of one between the blocks. */
static void check_reduce_scatterv(size_t count, amldist_type type, amldist_op op, int in_place) {
  const size_t unit = element_bytes[type];
  size_t counts[64], offsets[64], all = 0;
  for (int r = 0; r < size; ++r) counts[r] = count / (size_t)(r + 1), offsets[r] = all, all += counts[r] + 1;
  const size_t mine = counts[rank];
  buffer send = new_buffer(all * unit, 0), recv = new_buffer(mine * unit, unit), want = new_buffer(mine * unit, 0);
  fill(send.data, 0, all, rank, type, op);
  fill_combined(want.data, offsets[rank], mine, type, op);
  void* to = in_place ? send.data + offsets[rank] * unit : recv.data;
  OK(amldist_reduce_scatterv(world, send.data, to, counts, offsets, type, op));
  expect(to, want.data, mine * unit, "reduce_scatterv", count, type, (int)op);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* ---- bits ---- */
static unsigned char bits_of(int r, size_t byte, unsigned char mask) {
  return (unsigned char)((byte * 131 + (size_t)r * 89 + 7) >> 2) & mask;
}
static unsigned char combined_bits(size_t byte, amldist_op op, unsigned char mask) {
  unsigned char result = bits_of(0, byte, mask);
  for (int r = 1; r < size; ++r) {
    const unsigned char next = bits_of(r, byte, mask);
    if (op == AMLDIST_BAND || op == AMLDIST_PROD || op == AMLDIST_MIN) result &= next;
    else if (op == AMLDIST_BXOR) result ^= next;
    else result |= next;
  }
  return result;
}
static void fill_bits(unsigned char* data, size_t bytes, unsigned char mask) {
  const size_t first = at_most(bytes, BITS_PERIOD);
  for (size_t i = 0; i < first; ++i) data[i] = bits_of(rank, i, mask);
  repeat(data, first, bytes);
}
static void fill_combined_bits(unsigned char* data, size_t from, size_t bytes, amldist_op op, unsigned char mask) {
  const size_t first = at_most(bytes, BITS_PERIOD);
  for (size_t i = 0; i < first; ++i) data[i] = combined_bits(from + i, op, mask);
  repeat(data, first, bytes);
}
/* Of integers the three bitwise operators, of bools all but the average. */
static void check_bits(size_t count, amldist_type type, amldist_op op) {
  const unsigned char mask = type == AMLDIST_BOOL ? 1 : 0xff;
  const size_t bytes = count * element_bytes[type];
  buffer send = new_buffer(bytes * (size_t)size, 0), recv = new_buffer(bytes, 0), want = new_buffer(bytes, 0);
  fill_bits(send.data, bytes * (size_t)size, mask);
  fill_combined_bits(want.data, 0, bytes, op, mask);
  OK(amldist_allreduce(world, send.data, recv.data, count, type, op));
  expect(recv.data, want.data, bytes, "allreduce of bits", count, type, (int)op);
  memset(recv.data, GUARD, bytes);
  OK(amldist_reduce(world, send.data, recv.data, count, type, op, size - 1));
  if (rank == size - 1) expect(recv.data, want.data, bytes, "reduce of bits", count, type, (int)op);
  fill_combined_bits(want.data, bytes * (size_t)rank, bytes, op, mask);
  OK(amldist_reduce_scatter(world, send.data, recv.data, count, type, op));
  expect(recv.data, want.data, bytes, "reduce_scatter of bits", count, type, (int)op);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}
static void check_all_bits(size_t count) {
  static const amldist_type integers[] = {AMLDIST_INT8,  AMLDIST_UINT8,  AMLDIST_INT32, AMLDIST_UINT32,
                                          AMLDIST_INT64, AMLDIST_UINT64, AMLDIST_INT16, AMLDIST_UINT16};
  for (int op = AMLDIST_SUM; op <= AMLDIST_BXOR; ++op) {
    if (op != AMLDIST_AVG) check_bits(count, AMLDIST_BOOL, (amldist_op)op);
    if (op < AMLDIST_BAND) continue;
    for (size_t t = 0; t < sizeof integers / sizeof *integers; ++t) check_bits(count, integers[t], (amldist_op)op);
  }
}

/* ---- movements ---- */
static void check_broadcast(size_t count, amldist_type type, int root) {
  const size_t unit = element_bytes[type];
  buffer data = new_buffer(count * unit, unit), want = new_buffer(count * unit, 0);
  fill(data.data, 0, count, rank, type, AMLDIST_SUM);
  fill(want.data, 0, count, root, type, AMLDIST_SUM);
  OK(amldist_broadcast(world, data.data, count, type, root));
  expect(data.data, want.data, count * unit, "broadcast", count, type, root);
  free_buffer(data), free_buffer(want);
}

static void check_allgather(size_t count, amldist_type type, int in_place) {
  const size_t unit = element_bytes[type], all = count * (size_t)size;
  buffer send = new_buffer(count * unit, unit), recv = new_buffer(all * unit, 0), want = new_buffer(all * unit, 0);
  void* from = in_place ? recv.data + (size_t)rank * count * unit : send.data;
  fill(from, 0, count, rank, type, AMLDIST_SUM);
  for (int r = 0; r < size; ++r) fill(want.data + (size_t)r * count * unit, 0, count, r, type, AMLDIST_SUM);
  OK(amldist_allgather(world, from, recv.data, count, type));
  expect(recv.data, want.data, all * unit, "allgather", count, type, in_place);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* Rank r gives `count` / (r + 1) elements, with a gap of one between the blocks. */
static void check_allgatherv(size_t count, amldist_type type) {
  const size_t unit = element_bytes[type];
  size_t counts[64], offsets[64], all = 0;
  for (int r = 0; r < size; ++r) counts[r] = count / (size_t)(r + 1), offsets[r] = all, all += counts[r] + 1;
  buffer send = new_buffer(counts[rank] * unit, 0), recv = new_buffer(all * unit, 0), want = new_buffer(all * unit, 0);
  fill(send.data, 0, counts[rank], rank, type, AMLDIST_SUM);
  for (int r = 0; r < size; ++r) fill(want.data + offsets[r] * unit, 0, counts[r], r, type, AMLDIST_SUM);
  OK(amldist_allgatherv(world, send.data, counts[rank], recv.data, counts, offsets, type));
  expect(recv.data, want.data, all * unit, "allgatherv", count, type, 0);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

static void check_alltoall(size_t count, amldist_type type, int in_place) {
  const size_t unit = element_bytes[type], all = count * (size_t)size;
  buffer send = new_buffer(all * unit, 0), recv = new_buffer(all * unit, unit), want = new_buffer(all * unit, 0);
  fill(send.data, 0, all, rank, type, AMLDIST_SUM);
  for (int r = 0; r < size; ++r)
    fill(want.data + (size_t)r * count * unit, (size_t)rank * count, count, r, type, AMLDIST_SUM);
  void* to = in_place ? send.data : recv.data;
  OK(amldist_alltoall(world, send.data, to, count, type));
  expect(to, want.data, all * unit, "alltoall", count, type, in_place);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* Rank a sends b count * (a + 2 b) / (3 size) elements. */
static size_t crossing(size_t count, int a, int b) { return count * (size_t)(a + 2 * b) / (size_t)(3 * size); }
static void check_alltoallv(size_t count, amldist_type type) {
  const size_t unit = element_bytes[type];
  size_t out[64], out_at[64], in[64], in_at[64], out_all = 0, in_all = 0;
  for (int r = 0; r < size; ++r) {
    out[r] = crossing(count, rank, r), out_at[r] = out_all, out_all += out[r];
    in[r] = crossing(count, r, rank), in_at[r] = in_all, in_all += in[r];
  }
  buffer send = new_buffer(out_all * unit, 0), recv = new_buffer(in_all * unit, 0), want = new_buffer(in_all * unit, 0);
  for (int r = 0; r < size; ++r) {
    fill(send.data + out_at[r] * unit, (size_t)r, out[r], rank, type, AMLDIST_SUM);
    fill(want.data + in_at[r] * unit, (size_t)rank, in[r], r, type, AMLDIST_SUM);
  }
  OK(amldist_alltoallv(world, send.data, out, out_at, recv.data, in, in_at, type));
  expect(recv.data, want.data, in_all * unit, "alltoallv", count, type, 0);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

static void check_gather(size_t count, amldist_type type, int root, int in_place) {
  const size_t unit = element_bytes[type], all = count * (size_t)size;
  buffer send = new_buffer(count * unit, 0), recv = new_buffer(all * unit, 0), want = new_buffer(all * unit, 0);
  void* from = in_place && rank == root ? recv.data + (size_t)rank * count * unit : send.data;
  fill(from, 0, count, rank, type, AMLDIST_SUM);
  for (int r = 0; r < size; ++r) fill(want.data + (size_t)r * count * unit, 0, count, r, type, AMLDIST_SUM);
  OK(amldist_gather(world, from, rank == root ? recv.data : NULL, count, type, root));
  if (rank == root) expect(recv.data, want.data, all * unit, "gather", count, type, root);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

static void check_scatter(size_t count, amldist_type type, int root, int in_place) {
  const size_t unit = element_bytes[type], all = count * (size_t)size;
  buffer send = new_buffer(all * unit, 0), recv = new_buffer(count * unit, 0), want = new_buffer(count * unit, 0);
  fill(send.data, 0, all, root, type, AMLDIST_SUM);
  fill(want.data, (size_t)rank * count, count, root, type, AMLDIST_SUM);
  void* to = in_place && rank == root ? send.data + (size_t)rank * count * unit : recv.data;
  OK(amldist_scatter(world, rank == root ? send.data : NULL, to, count, type, root));
  expect(to, want.data, count * unit, "scatter", count, type, root);
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* Short ones in a row, in which the root runs ahead of the others as far as it may. */
static void check_streams(size_t count) {
  const size_t unit = element_bytes[AMLDIST_INT32];
  buffer send = new_buffer(count * (size_t)size * unit, 0), recv = new_buffer(count * unit, 0);
  buffer want = new_buffer(count * unit, 0);
  for (int call = 0; call < 300; ++call) {
    const int scatters = call % 3 != 0;
    for (size_t i = 0; rank == 0 && i < count * (size_t)size; ++i)
      ((int32_t*)send.data)[i] = 1000 * call + (int32_t)(i / count);
    for (size_t i = 0; i < count; ++i) ((int32_t*)want.data)[i] = 1000 * call + (scatters ? rank : 0);
    void* const got = rank == 0 && !scatters ? send.data : recv.data;
    if (scatters) OK(amldist_scatter(world, send.data, recv.data, count, AMLDIST_INT32, 0));
    else OK(amldist_broadcast(world, got, count, AMLDIST_INT32, 0));
    expect(got, want.data, count * unit, scatters ? "scatter in a row" : "broadcast in a row", count, AMLDIST_INT32, 0);
  }
  free_buffer(send), free_buffer(recv), free_buffer(want);
}

/* Round the ring, both directions at once in a group; and a chain of blocking ones. */
static void check_messages(size_t count, amldist_type type) {
  if (size == 1) return;
  const size_t unit = element_bytes[type];
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  buffer send = new_buffer(count * unit, 0), left = new_buffer(count * unit, 0), right = new_buffer(count * unit, 0);
  buffer want = new_buffer(count * unit, 0);
  fill(send.data, 0, count, rank, type, AMLDIST_SUM);
  OK(amldist_group_begin(world));
  OK(amldist_send(world, send.data, count, type, next));
  OK(amldist_send(world, send.data, count, type, before));
  OK(amldist_recv(world, left.data, count, type, before));
  OK(amldist_recv(world, right.data, count, type, next));
  OK(amldist_group_end(world));
  fill(want.data, 0, count, before, type, AMLDIST_SUM);
  expect(left.data, want.data, count * unit, "recv from the left", count, type, 0);
  fill(want.data, 0, count, next, type, AMLDIST_SUM);
  expect(right.data, want.data, count * unit, "recv from the right", count, type, 0);
  if (rank > 0) OK(amldist_recv(world, left.data, count, type, rank - 1));
  if (rank + 1 < size) OK(amldist_send(world, rank == 0 ? send.data : left.data, count, type, rank + 1));
  fill(want.data, 0, count, 0, type, AMLDIST_SUM);
  if (rank > 0) expect(left.data, want.data, count * unit, "chain", count, type, 0);
  free_buffer(send), free_buffer(left), free_buffer(right), free_buffer(want);
}

/* All processes of a test are on one machine, and have one clock. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* No rank leaves a barrier before the last has entered it, whichever that is. */
static void check_barrier(void) {
  for (int late = 0; late < size; ++late) {
    if (rank == late) usleep(2000);
    const double entered = now();
    OK(amldist_barrier(world));
    const double left = now();
    double last = 0;
    OK(amldist_allreduce(world, &entered, &last, 1, AMLDIST_FLOAT64, AMLDIST_MAX));
    CHECK(left >= last);
  }
}

/* ---- lists ---- */
static void check_all(size_t count, amldist_type type, int roots, int ops) {
  for (int op = 0; op < ops; ++op) {
    for (int in_place = 0; in_place < 2; ++in_place) {
      check_allreduce(count, type, (amldist_op)op, in_place);
      check_reduce_scatter(count, type, (amldist_op)op, in_place);
      check_reduce_scatterv(count, type, (amldist_op)op, in_place);
      for (int root = 0; root < roots; ++root) check_reduce(count, type, (amldist_op)op, in_place, root);
    }
  }
  for (int in_place = 0; in_place < 2; ++in_place) {
    check_allgather(count, type, in_place);
    check_alltoall(count, type, in_place);
    for (int root = 0; root < roots; ++root) {
      check_gather(count, type, root, in_place);
      check_scatter(count, type, root, in_place);
    }
  }
  for (int root = 0; root < roots; ++root) check_broadcast(count, type, root);
  check_allgatherv(count, type);
  check_alltoallv(count, type);
  check_messages(count, type);
  OK(amldist_barrier(world));
}

/* Under a sanitizer, where a call takes several times as long, each number of ranks has a third of the combinations. */
static int is_another_worlds(size_t combination) {
#ifdef __SANITIZE_ADDRESS__
  return (combination + (size_t)size) % 3 != 0;
#else
  return (void)combination, 0;
#endif
}

/* All types and operators, in messages most of which are shorter than 8 KiB: sizes round the borders of lines and
 * vectors, every root at one. */
static void run_short_operations(void) {
  static const size_t small[] = {0, 1, 7, 13, 15, 29, 63, 1025};
  for (int type = 0; type < TYPES; ++type) {
    for (size_t i = 0; i < sizeof small / sizeof *small; ++i) {
      if (is_another_worlds((size_t)type + i)) continue;
      check_all(small[i], (amldist_type)type, small[i] == 29 ? size : 1, OPS);
    }
  }
  for (size_t i = 0; i < sizeof small / sizeof *small; ++i) check_all_bits(small[i]);
  for (size_t i = 1; i < sizeof small / sizeof *small; ++i) check_streams(small[i]);
  check_all(1025, AMLDIST_BOOL, 1, 0);
}

/* Then sizes round pages and pieces. */
void run_operations(void) {
  static const size_t large[] = {4095, 16387, 100003, 300007};
  run_short_operations();
  check_all_bits(300007);
  check_barrier();
  for (int in_place = 0; in_place < 2; ++in_place) {
    for (size_t i = 0; i < sizeof large / sizeof *large; ++i) {
      if (is_another_worlds(i + (size_t)in_place)) continue;
      check_allocated(large[i], AMLDIST_FLOAT32, ~0u, in_place);
      check_allocated(large[i], AMLDIST_FLOAT64, 5, in_place);
      check_allocated(large[i], AMLDIST_BFLOAT16, 2, in_place);
    }
  }
  for (size_t i = 0; i < sizeof large / sizeof *large; ++i) {
    if (!is_another_worlds(i)) check_all(large[i], AMLDIST_FLOAT32, 1, 1);
    if (!is_another_worlds(i + 1)) check_all(large[i], AMLDIST_BFLOAT16, 1, 1);
  }
}

/* What goes through a tree where nodes are many: scatters of blocks up to 4 KiB, and longer ones that do not. And
 * barriers. */
void run_many_nodes(void) {
  static const size_t counts[] = {0, 1, 3, 500, 1024, 1025};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    for (int root = 0; root < size; ++root) {
      check_scatter(counts[i], AMLDIST_FLOAT32, root, root % 2);
      check_gather(counts[i], AMLDIST_FLOAT32, root, root % 2);
    }
    check_streams(counts[i]);
  }
  check_barrier();
}
