// CUDA's words for a CPU: generated kernels (backends/torch/fuse/generate.h) behind this header are C++. Each thread of
// a block is a coroutine, so that barriers and shuffles do what they do on a GPU.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

struct HostIndex {
  unsigned x;
};
static HostIndex threadIdx, blockIdx;

struct HostThread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = true;
};
static std::vector<HostThread> host_threads;
static ucontext_t host_scheduler;

static void HostYield() { swapcontext(&host_threads[threadIdx.x].context, &host_scheduler); }

// Opens when so many threads wait.
struct HostBarrier {
  unsigned waiting = 0, generation = 0;

  void Wait(unsigned threads) {
    const unsigned mine = generation;
    if (++waiting == threads) {
      waiting = 0;
      ++generation;
      return;
    }
    while (generation == mine) HostYield();
  }
};
static HostBarrier host_block;
static HostBarrier host_warps[32];
static unsigned host_block_threads;

static void __syncthreads() { host_block.Wait(host_block_threads); }
static void __syncwarp() { host_warps[threadIdx.x / 32].Wait(32); }

static float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }

template <typename T>
static T __shfl_xor_sync(unsigned, T x, int lanes) {
  static T exchanged[1024];
  exchanged[threadIdx.x] = x;
  __syncwarp();
  const T other = exchanged[threadIdx.x ^ static_cast<unsigned>(lanes)];
  __syncwarp();
  return other;
}

struct HostPointers {
  void* at[32];
};
using HostKernel = void (*)(HostPointers);

static HostKernel host_kernel;
static HostPointers host_pointers;

static void HostMain() {
  host_kernel(host_pointers);
  host_threads[threadIdx.x].done = true;
}

static void HostRunBlock(unsigned threads) {
  constexpr size_t kStack = 1 << 16;
  for (unsigned t = 0; t < threads; ++t) {
    HostThread& thread = host_threads[t];
    if (thread.stack == nullptr) thread.stack = std::make_unique<char[]>(kStack);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = &host_scheduler;
    makecontext(&thread.context, HostMain, 0);
    thread.done = false;
  }
  for (bool running = true; running;) {
    running = false;
    for (unsigned t = 0; t < threads; ++t) {
      if (host_threads[t].done) continue;
      running = true;
      threadIdx.x = t;
      swapcontext(&host_scheduler, &host_threads[t].context);
    }
  }
}

extern "C" void onnxtrain_host_launch(HostKernel kernel, void* const* pointers, long blocks, unsigned threads) {
  host_kernel = kernel;
  for (int i = 0; i < 32; ++i) host_pointers.at[i] = pointers[i];
  if (host_threads.size() < threads) host_threads.resize(threads);
  host_block_threads = threads;
  for (long b = 0; b < blocks; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    HostRunBlock(threads);
  }
}
