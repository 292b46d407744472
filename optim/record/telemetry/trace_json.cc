// The file format: "Trace Event Format" of the Chromium project. Complete events ("X") of one thread nest by their
// times; metadata events ("M") name the threads.
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/json_writer.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {
namespace {

// Names of nodes may hold any bytes.
std::string Quoted(const std::string& text) { return WriteJson(nlohmann::json(text)); }

std::string TrackName(int track) {
  if (track == Trace::kTraining) return "training";
  return track == Trace::kCheckpoints ? "checkpoint writer" : StrCat("loader ", track - Trace::kFirstWorker + 1);
}

std::string ThreadName(int track) {
  return absl::StrFormat(R"({"ph":"M","name":"thread_name","pid":1,"tid":%d,"args":{"name":%s}})", track,
                         Quoted(TrackName(track)));
}

// Of a span, up to its arguments.
std::string Event(int track, const std::string& name, const char* category, double begin, double end) {
  return absl::StrFormat(R"({"ph":"X","name":%s,"cat":"%s","pid":1,"tid":%d,"ts":%.3f,"dur":%.3f)", Quoted(name),
                         category, track, begin, end - begin);
}

}  // namespace

std::string Trace::ToJson() const {
  const std::lock_guard lock(mutex_);
  std::string text = R"({"displayTimeUnit":"ms","otherData":{)";
  for (const auto& [name, value] : run_) StrAppend(&text, Quoted(name), ":", Quoted(value), ",");
  StrAppend(&text, R"("spans left out":)", dropped_, "},\n\"traceEvents\":[\n");
  StrAppend(&text, R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"onnxtrain"}})");
  std::set<int> tracks;
  for (const SpanRecord& span : spans_) tracks.insert(span.track);
  for (const int track : tracks) StrAppend(&text, ",\n", ThreadName(track));
  for (const SpanRecord& s : spans_)
    StrAppend(&text, ",\n", Event(s.track, s.name, "run", Microseconds(s.begin), Microseconds(s.end)), "}");
  for (const NodeSpan& span : nodes_) {
    const NodeInfo& node = span.program->nodes[span.run.node];
    StrAppend(&text, ",\n",
              Event(kTraining, node.op, "operator", Microseconds(span.run.begin), Microseconds(span.run.end)));
    absl::StrAppendFormat(&text, R"(,"args":{"node":%s,"types":%s,"bytes":%.0f,"flops":%.0f}})", Quoted(node.source),
                          Quoted(node.types), node.bytes, node.flops);
  }
  return text + "\n]}\n";
}

}  // namespace onnxtrain
