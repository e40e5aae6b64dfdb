#define AMLDIST_VECTOR_BYTES 32
#include "collective/kernels/reductions_kernel.hpp"

namespace amldist::collective {

KernelTable avx2_kernels() noexcept { return {fold_table, &copy_bytes}; }

}  // namespace amldist::collective
