/* The device part: operations on gradients on a GPU around a collective, one kernel each, on the caller's stream.
 *
 * It is libamldist_device.so, built where the CUDA toolkit is available; libamldist opens it on first use. All
 * functions enqueue and return: 0, a cudaError_t (positive), or -1 for an invalid argument. Pointers are device memory;
 * `pieces` is host memory and may be reused after the call. Types and their numbers are those of amldist_type. Floating
 * types (float16, bfloat16, float32, float64) convert into each other and are scaled in float32, or in float64 where
 * one of the two is float64; other types are only moved, with equal types and a scale of 1.
 */
#ifndef AMLDIST_COLLECTIVE_DEVICE_KERNELS_H
#define AMLDIST_COLLECTIVE_DEVICE_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AMLDIST_DEVICE_API __attribute__((visibility("default")))

/* A tensor of a bucket. */
typedef struct amldist_device_piece {
  void* data;    /* device memory, aligned to its type */
  size_t count;  /* elements */
  size_t offset; /* where it lies in the bucket, in elements */
} amldist_device_piece;

/* bucket[offset + i] = scale * data[i], for every piece. One kernel for each 160 pieces. */
AMLDIST_DEVICE_API int amldist_device_pack(const amldist_device_piece* pieces, size_t piece_count, int piece_type,
                                           void* bucket, int bucket_type, double scale, void* stream);

/* data[i] = scale * bucket[offset + i], for every piece. */
AMLDIST_DEVICE_API int amldist_device_unpack(const amldist_device_piece* pieces, size_t piece_count, int piece_type,
                                             const void* bucket, int bucket_type, double scale, void* stream);

/* data[i] *= scale. */
AMLDIST_DEVICE_API int amldist_device_scale(void* data, size_t count, int type, double scale, void* stream);

/* out[i] = scale * in[i], with a conversion; in == out only where both types have the same size. */
AMLDIST_DEVICE_API int amldist_device_cast(const void* in, int in_type, void* out, int out_type, size_t count,
                                           double scale, void* stream);

/* Text for a return value, such as "invalid device pointer"; static. */
AMLDIST_DEVICE_API const char* amldist_device_error(int result);

/* Version of the toolkit that built it, as CUDART_VERSION: 13000. */
AMLDIST_DEVICE_API int amldist_device_cuda_version(void);

#ifdef __cplusplus
}
#endif
#endif
