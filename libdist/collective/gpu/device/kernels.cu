#include "collective/gpu/device/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace {

constexpr int threads = 256;
constexpr std::size_t pieces_per_launch = 160;  // their table is a kernel argument, limited to 4 KiB
constexpr unsigned most_blocks = 1024;          // per piece: enough to fill any GPU
constexpr int invalid = -1;

enum Type { int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, int16, uint16, types };

struct Piece {
  void* data;
  std::size_t count;
  std::size_t offset;
};

struct Pieces {
  Piece piece[pieces_per_launch];
};
static_assert(sizeof(Pieces) + 64 <= 4096, "the limit of kernel arguments before CUDA 12.1");

/// The type for arithmetic between two types: double if either is double, else float.
template <typename A, typename B>
struct Common {
  using type = float;
};
template <typename B>
struct Common<double, B> {
  using type = double;
};
template <typename A>
struct Common<A, double> {
  using type = double;
};
template <>
struct Common<double, double> {
  using type = double;
};

template <typename Wide, typename T>
__device__ Wide widen(T value) {
  return static_cast<Wide>(value);
}
template <typename T, typename Wide>
__device__ T narrow(Wide value) {
  return static_cast<T>(value);
}
template <>
__device__ __half narrow<__half, double>(double value) {
  return __double2half(value);
}
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16, double>(double value) {
  return __double2bfloat16(value);
}
template <>
__device__ double widen<double, __half>(__half value) {
  return static_cast<double>(__half2float(value));
}
template <>
__device__ double widen<double, __nv_bfloat16>(__nv_bfloat16 value) {
  return static_cast<double>(__bfloat162float(value));
}

/// out = scale * in, with conversion.
template <typename In, typename Out>
struct Convert {
  using Wide = typename Common<In, Out>::type;
  Wide scale;
  __device__ Out operator()(In value) const { return narrow<Out>(scale * widen<Wide>(value)); }
};

/// out = in, bit by bit.
template <typename T>
struct Move {
  __device__ T operator()(T value) const { return value; }
};

template <typename T, int lanes>
struct alignas(sizeof(T) * lanes) Vector {
  T lane[lanes];
};

__device__ bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// Runs on all threads of the blocks of one row: wide loads and stores if both sides are aligned, single elements for
/// the rest.
template <typename In, typename Out, typename Function>
__device__ void transform(const In* in, Out* out, std::size_t count, Function function) {
  constexpr int lanes = static_cast<int>(16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out)));
  using WideIn = Vector<In, lanes>;
  using WideOut = Vector<Out, lanes>;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const bool wide = aligned(in, sizeof(WideIn)) && aligned(out, sizeof(WideOut));
  const std::size_t vectors = wide ? count / lanes : 0;
  for (std::size_t i = first; i < vectors; i += step) {
    const WideIn from = reinterpret_cast<const WideIn*>(in)[i];
    WideOut to;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) to.lane[lane] = function(from.lane[lane]);
    reinterpret_cast<WideOut*>(out)[i] = to;
  }
  for (std::size_t i = vectors * lanes + first; i < count; i += step) out[i] = function(in[i]);
}

template <typename In, typename Out, typename Function>
__global__ void pack(Pieces pieces, Out* bucket, Function function) {
  const Piece& piece = pieces.piece[blockIdx.y];
  transform(static_cast<const In*>(piece.data), bucket + piece.offset, piece.count, function);
}

template <typename In, typename Out, typename Function>
__global__ void unpack(Pieces pieces, const In* bucket, Function function) {
  const Piece& piece = pieces.piece[blockIdx.y];
  transform(bucket + piece.offset, static_cast<Out*>(piece.data), piece.count, function);
}

enum class Way { pack, unpack };

struct Job {
  const amldist_device_piece* pieces;
  std::size_t piece_count;
  void* bucket;
  cudaStream_t stream;
};

/// Splits the pieces into groups and launches one kernel for each.
template <Way way, typename PieceType, typename BucketType, typename Function>
int launch(const Job& job, Function function) {
  for (std::size_t done = 0; done < job.piece_count; done += pieces_per_launch) {
    const std::size_t group = std::min(pieces_per_launch, job.piece_count - done);
    Pieces table = {};
    std::size_t longest = 0;
    for (std::size_t i = 0; i < group; ++i) {
      const amldist_device_piece& piece = job.pieces[done + i];
      table.piece[i] = {piece.data, piece.count, piece.offset};
      longest = std::max(longest, piece.count);
    }
    if (longest == 0) continue;
    constexpr std::size_t per_block = static_cast<std::size_t>(threads) * 4;
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>((longest - 1) / per_block + 1, most_blocks));
    const dim3 grid(blocks, static_cast<unsigned>(group));
    auto* const bucket = static_cast<BucketType*>(job.bucket);
    if constexpr (way == Way::pack)
      pack<PieceType, BucketType><<<grid, threads, 0, job.stream>>>(table, bucket, function);
    else unpack<BucketType, PieceType><<<grid, threads, 0, job.stream>>>(table, bucket, function);
    if (const cudaError_t problem = cudaGetLastError(); problem != cudaSuccess) return problem;
  }
  return cudaSuccess;
}

template <Way way, typename PieceType, typename BucketType>
int convert(const Job& job, double scale) {
  using Wide = typename Common<PieceType, BucketType>::type;
  const auto factor = static_cast<Wide>(scale);
  if constexpr (way == Way::pack)
    return launch<way, PieceType, BucketType>(job, Convert<PieceType, BucketType>{factor});
  else return launch<way, PieceType, BucketType>(job, Convert<BucketType, PieceType>{factor});
}

template <Way way, typename PieceType>
int convert_to(const Job& job, int bucket_type, double scale) {
  switch (bucket_type) {
    case float16:
      return convert<way, PieceType, __half>(job, scale);
    case bfloat16:
      return convert<way, PieceType, __nv_bfloat16>(job, scale);
    case float32:
      return convert<way, PieceType, float>(job, scale);
    case float64:
      return convert<way, PieceType, double>(job, scale);
    default:
      return invalid;
  }
}

std::size_t size_of(int type) {
  constexpr std::size_t sizes[types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 2, 2};
  return sizes[type];
}

template <Way way, typename Bits>
int move_bits(const Job& job) {
  return launch<way, Bits, Bits>(job, Move<Bits>{});
}

template <Way way>
int move(const Job& job, int type) {
  switch (size_of(type)) {
    case 1:
      return move_bits<way, std::uint8_t>(job);
    case 2:
      return move_bits<way, std::uint16_t>(job);
    case 4:
      return move_bits<way, std::uint32_t>(job);
    default:
      return move_bits<way, std::uint64_t>(job);
  }
}

bool is_possible(const Job& job, int piece_type, int bucket_type) {
  const auto known = [](int type) { return type >= 0 && type < types; };
  if (!known(piece_type) || !known(bucket_type)) return false;
  if (job.piece_count != 0 && (job.pieces == nullptr || job.bucket == nullptr)) return false;
  return std::all_of(job.pieces, job.pieces + job.piece_count,
                     [](const amldist_device_piece& piece) { return piece.count == 0 || piece.data != nullptr; });
}

template <Way way>
int run(const Job& job, int piece_type, int bucket_type, double scale) {
  if (!is_possible(job, piece_type, bucket_type)) return invalid;
  if (piece_type == bucket_type && scale == 1) return move<way>(job, piece_type);
  switch (piece_type) {
    case float16:
      return convert_to<way, __half>(job, bucket_type, scale);
    case bfloat16:
      return convert_to<way, __nv_bfloat16>(job, bucket_type, scale);
    case float32:
      return convert_to<way, float>(job, bucket_type, scale);
    case float64:
      return convert_to<way, double>(job, bucket_type, scale);
    default:
      return invalid;
  }
}

}  // namespace

int amldist_device_pack(const amldist_device_piece* pieces, size_t piece_count, int piece_type, void* bucket,
                        int bucket_type, double scale, void* stream) {
  return run<Way::pack>({pieces, piece_count, bucket, static_cast<cudaStream_t>(stream)}, piece_type, bucket_type,
                        scale);
}

int amldist_device_unpack(const amldist_device_piece* pieces, size_t piece_count, int piece_type, const void* bucket,
                          int bucket_type, double scale, void* stream) {
  return run<Way::unpack>({pieces, piece_count, const_cast<void*>(bucket), static_cast<cudaStream_t>(stream)},
                          piece_type, bucket_type, scale);
}

int amldist_device_scale(void* data, size_t count, int type, double scale, void* stream) {
  return amldist_device_cast(data, type, data, type, count, scale, stream);
}

int amldist_device_cast(const void* in, int in_type, void* out, int out_type, size_t count, double scale,
                        void* stream) {
  const amldist_device_piece whole = {const_cast<void*>(in), count, 0};
  return amldist_device_pack(&whole, 1, in_type, out, out_type, scale, stream);
}

const char* amldist_device_error(int result) {
  if (result == invalid) return "types that do not convert into each other, or a pointer that is NULL";
  return cudaGetErrorString(static_cast<cudaError_t>(result));
}

int amldist_device_cuda_version(void) { return CUDART_VERSION; }
