// Processes of one job on one machine.
#pragma once

namespace onnxtrain {

// AvailableMemory() returns this process's share from now on, where `processes` of one size run on the machine.
void ShareMemory(int processes);

}  // namespace onnxtrain
