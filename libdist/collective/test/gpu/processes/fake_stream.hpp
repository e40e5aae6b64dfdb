// What the pretended CUDA offers to the pretended NCCL: work in the order of a stream, beside the program.
#pragma once

#include <functional>

namespace amldist::testing {

/// Appends work to a stream (a cudaStream_t; nullptr: the default stream). It runs on the stream's own thread.
__attribute__((visibility("default"))) void enqueue_on_stream(void* stream, std::function<void()> work);

/// Ordinary memory that is called the device's from now on, as cudaMalloc gives it.
__attribute__((visibility("default"))) void* allocate_on_device(std::size_t bytes);
__attribute__((visibility("default"))) void free_on_device(void* memory);

}  // namespace amldist::testing
