#define AMLDIST_VECTOR_BYTES 64
#include "collective/kernels/reductions_kernel.hpp"

namespace amldist::collective {

KernelTable avx512_kernels() noexcept { return {fold_table, &copy_bytes}; }

}  // namespace amldist::collective
