// What a training run says before its first step and after its last.
#pragma once

#include <string>
#include <vector>

#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/train_setup.h"

namespace onnxtrain::cli {

// Model, data, loss and why, weights, batch arithmetic, optimizer, machine, output; then every default with the flag
// that overrides it. Many lines, the last with a newline.
std::string StartPage(const TrainSetup& setup);

// The result, for people.
std::string EndPage(const RunSummary& summary, const TrainSetup& setup, const std::vector<std::string>& files);

// "label  text" rows: the label's column is as wide as the page wants; a row without label continues the one above.
std::string PageRow(const std::string& label, const std::string& text);

}  // namespace onnxtrain::cli
