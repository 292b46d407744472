// The seeds that make_seeds.py writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace onnxtrain {

// The folder of the seeds, a folder for each target; made with the first call and removed at exit. Empty: the script
// failed.
std::filesystem::path SeedsFolder();

// Returns the contents of at most 60 files, spread over the sorted folder.
std::vector<std::string> ReadSeeds(const std::filesystem::path& folder);

}  // namespace onnxtrain
