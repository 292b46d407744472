// What the process asks of the machine before a backend is loaded.
#pragma once

#include <atomic>
#include <string>

namespace onnxtrain::cli {

// Threads for compute: --threads if above 0, else OMP_NUM_THREADS if the user set it, else CpuCount(); no more than OMP_THREAD_LIMIT.
int ChooseThreads(int wanted);

// Thread counts, wait policy and, where the CPU has AVX-512, OpenBLAS's core type. libgomp and OpenBLAS read them when
// they are loaded, so this comes before CreateBackend. What the user has set stays.
void SetEnvironment(int threads);

// "Intel(R) Xeon(R) Processor @ 2.20GHz"
std::string CpuName();

// Writing to a pipe that nobody reads gives an error and no signal.
void IgnoreBrokenPipes();

// From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 set the flag that is returned; a second signal ends the process at
// once, as if nothing had been caught.
const std::atomic<bool>* CatchSignals();

}  // namespace onnxtrain::cli
