#include "optim/record/telemetry/profile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "backends/bound_program.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/philox.h"
#include "frontend/base/status.h"
#include "frontend/ops/cost.h"

namespace onnxtrain {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Returns a key that is equal for nodes of the same operator, types and attributes.
std::string Signature(const Graph& graph, const Node& node) {
  std::string text = node.op;
  for (ValueId v : node.inputs) StrAppend(&text, " ", v == kNoValue ? "-" : ToString(graph.type(v)));
  for (const auto& [name, value] : node.attrs) {
    if (const auto* flag = std::get_if<int64_t>(&value); flag != nullptr && *flag != 0)
      StrAppend(&text, " ", name, "=", *flag);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      StrAppend(&text, " ", name, "=");
      for (size_t i = 0; i < list->size(); ++i) StrAppend(&text, i == 0 ? "" : ",", (*list)[i]);
    }
  }
  return text;
}

// Returns false if integers decide how much the node computes: nothing, with zeros.
bool RunsAlone(const Graph& graph, const Node& node) {
  return std::ranges::none_of(node.inputs, [&](ValueId v) {
    return v != kNoValue && (graph.type(v).dtype == DType::kInt64 || graph.type(v).dtype == DType::kInt32);
  });
}

// Returns a graph of this node alone, with all operands as feeds.
Graph Alone(const Graph& graph, const Node& node) {
  Graph alone;
  ValueIds inputs;
  for (ValueId v : node.inputs) {
    inputs.push_back(v == kNoValue ? kNoValue
                                   : alone.AddInput(InputKind::kFeed, StrCat("x", inputs.size()), graph.type(v)));
  }
  std::vector<Type> types;
  for (ValueId v : node.outputs) types.push_back(graph.type(v));
  const ValueIds outputs = alone.AddNode(node.op, inputs, node.attrs, types).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) alone.AddOutput(StrCat("y", i), outputs[i]);
  return alone;
}

// Returns a graph of all products of the program that run alone and no other nodes. Each operand is one feed even if
// several products read it, so that caches serve forward and backward pass as in the program.
Graph ProductsOf(const Graph& graph) {
  Graph alone;
  std::map<ValueId, ValueId> feeds;
  const auto feed = [&](ValueId v) {
    if (v == kNoValue) return kNoValue;
    const auto [it, fresh] = feeds.try_emplace(v, kNoValue);
    if (fresh) it->second = alone.AddInput(InputKind::kFeed, StrCat("x", v), graph.type(v));
    return it->second;
  };
  for (const Node& node : graph.nodes()) {
    if (!IsProduct(node) || !RunsAlone(graph, node)) continue;
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(feed(v));
    std::vector<Type> types;
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    const ValueIds outputs = alone.AddNode(node.op, inputs, node.attrs, types).outputs;
    for (ValueId v : outputs) alone.AddOutput(StrCat("y", v), v);
  }
  return alone;
}

// Writes normally distributed numbers to the float inputs. Products of zeros take less power than those of a step, so
// that processors run them at higher clocks.
absl::Status FillFloats(BoundProgram& program) {
  constexpr int64_t kPeriod = 65521;
  HostTensor numbers({DType::kFloat32, {kPeriod}});
  for (int64_t i = 0; i < kPeriod; ++i) {
    const auto words = Philox4x32({static_cast<uint32_t>(i)}, {});
    numbers.Set(i, BoxMuller(words[0], words[1])[0]);
  }
  const Graph& graph = program.graph();
  for (const GraphInput& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    if (!IsFloat(type.dtype)) continue;
    const HostTensor some = numbers.CastTo(type.dtype);
    HostTensor all(type);
    const std::span<std::byte> bytes = all.mutable_bytes();
    for (size_t at = 0; at < bytes.size(); at += some.bytes().size())
      std::copy_n(some.bytes().begin(), std::min(some.bytes().size(), bytes.size() - at), bytes.begin() + at);
    RETURN_IF_ERROR(program.Set(input.name, all));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Seconds(BoundProgram& program) {
  const double begin = Now();
  RETURN_IF_ERROR(program.Run());
  return Now() - begin;
}

// Returns the seconds of each run with random numbers, repeated for about `budget` seconds.
absl::StatusOr<std::vector<double>> TimeRuns(BoundProgram& program, double budget) {
  RETURN_IF_ERROR(FillFloats(program));
  RETURN_IF_ERROR(Seconds(program).status());
  std::vector<double> times;
  for (const double end = Now() + budget; times.size() < 5 || (Now() < end && times.size() < 1000);) {
    ASSIGN_OR_RETURN(times.emplace_back(), Seconds(program));
  }
  return times;
}

}  // namespace

std::vector<OperatorTime> OperatorTimes(const std::vector<ProgramProfile>& programs, int64_t updates) {
  std::map<std::string, OperatorTime> by_op;
  for (const ProgramProfile& profile : programs) {
    const Graph& graph = profile.program->graph();
    const auto seconds = profile.program->NodeSeconds();
    const double runs = static_cast<double>(profile.runs) / static_cast<double>(updates);
    for (size_t n = 0; n < seconds.size() && profile.runs > 0; ++n) {
      const Node& node = graph.nodes()[n];
      if (seconds[n] == 0) continue;  // constants and views do not run
      OperatorTime& time = by_op[node.op];
      time.op = node.op;
      ++time.nodes;
      time.seconds += seconds[n] / static_cast<double>(updates);
      time.flops += NodeFlops(graph, node) * runs;
      time.bytes += NodeBytes(graph, node) * runs;
    }
  }
  std::vector<OperatorTime> times;
  for (auto& [op, time] : by_op) times.push_back(std::move(time));
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                       double seconds) {
  struct Found {
    ProductRate rate;
    const Graph* graph;
    const Node* node;
  };
  std::map<std::string, Found> found;
  for (const ProgramProfile& profile : programs) {
    const Graph& graph = profile.program->graph();
    const auto times = profile.program->NodeSeconds();
    for (size_t n = 0; n < graph.nodes().size() && profile.runs > 0; ++n) {
      const Node& node = graph.nodes()[n];
      if (!IsProduct(node)) continue;
      Found& f = found[Signature(graph, node)];
      f.graph = &graph;
      f.node = &node;
      f.rate.flops = NodeFlops(graph, node);
      f.rate.in_step += times.empty() ? 0 : times[n] / static_cast<double>(profile.runs);
      ++f.rate.nodes;
    }
  }
  std::vector<ProductRate> rates;
  for (auto& [text, f] : found) {
    if (RunsAlone(*f.graph, *f.node)) {
      auto alone = BoundProgram::Make(backend, Alone(*f.graph, *f.node));
      if (!alone.ok()) return Annotate(alone.status(), NodeTag(*f.node));
      ASSIGN_OR_RETURN(std::vector<double> times, TimeRuns(*alone, seconds));
      f.rate.seconds = Median(std::move(times));
    }
    f.rate.text = text;
    f.rate.in_step /= static_cast<double>(f.rate.nodes);
    rates.push_back(std::move(f.rate));
  }
  std::sort(rates.begin(), rates.end(),
            [](const auto& a, const auto& b) { return a.nodes * a.in_step > b.nodes * b.in_step; });
  return rates;
}

absl::StatusOr<ProductWork> ProbeProductsTogether(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                  int64_t updates, double seconds) {
  ProductWork work;
  for (const ProgramProfile& profile : programs) {
    const Graph& graph = profile.program->graph();
    double flops = 0;
    for (const Node& node : graph.nodes())
      flops += IsProduct(node) && RunsAlone(graph, node) ? NodeFlops(graph, node) : 0;
    if (profile.runs == 0 || flops == 0) continue;
    const double runs = static_cast<double>(profile.runs) / static_cast<double>(updates);
    ASSIGN_OR_RETURN(BoundProgram products, BoundProgram::MakeForTiming(backend, ProductsOf(graph)));
    ASSIGN_OR_RETURN(const std::vector<double> times, TimeRuns(products, seconds));
    work.flops += runs * flops;
    work.seconds += runs * std::ranges::min(times);
  }
  return work;
}

double TriadBandwidth(int threads) {
  constexpr size_t kElements = size_t{1} << 24;  // 64 MiB each: larger than the caches
  std::vector<float> a(kElements), b(kElements, 1), c(kElements, 2);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = Now();
    RunParts(threads, [&](int64_t t) {
      const size_t end = kElements * (t + 1) / threads;
      for (size_t i = kElements * t / threads; i < end; ++i) a[i] = b[i] + 3.0F * c[i];
    });
    best = std::max(best, 3.0 * sizeof(float) * kElements / (Now() - begin));
  }
  return best;
}

}  // namespace onnxtrain
