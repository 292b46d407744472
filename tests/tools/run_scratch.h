// A scratch folder with runs in it.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/scratch.h"

namespace onnxtrain {

class RunScratch : public Scratch {
 protected:
  nlohmann::json Summary(const std::string& run) const {
    return nlohmann::json::parse(ReadAll(Path(run + "/summary.json")));
  }
  // The lines of metrics.jsonl.
  std::vector<nlohmann::json> Metrics(const std::string& run) const {
    std::vector<nlohmann::json> events;
    std::istringstream lines(ReadAll(Path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
    return events;
  }
};

}  // namespace onnxtrain
