#include "frontend/ops/host_eval.h"

#include <cstring>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

Shape BroadcastStrides(const Shape& from, const Shape& to) {
  const Shape dense = Strides(from);
  Shape strides(to.size(), 0);
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[lead + i] = dense[i];
  }
  return strides;
}

void CopyElement(const HostTensor& x, int64_t j, HostTensor* y, int64_t i) {
  const size_t size = DTypeSize(x.dtype());
  std::memcpy(y->mutable_bytes().data() + i * size, x.bytes().data() + j * size, size);
}

HostTensor GatherStrided(const HostTensor& x, const Type& type, const Shape& strides, int64_t start) {
  HostTensor y(type);
  Walk<1>(type.shape, {strides}, {start},
          [&](int64_t i, const std::array<int64_t, 1>& at) { CopyElement(x, at[0], &y, i); });
  return y;
}

int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrapSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrapMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t SafeDiv(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? WrapSub(0, a) : a / b; }
int64_t SafeMod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t r = SafeMod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t WrapPow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; b > 0; b >>= 1, a = WrapMul(a, a)) {
    if (b & 1) result = WrapMul(result, a);
  }
  return result;
}

namespace {

absl::StatusOr<std::vector<HostTensor>> RunNode(const Node& node, const std::vector<const HostTensor*>& inputs,
                                                const std::vector<Type>& types);

absl::StatusOr<std::vector<HostTensor>> RunDecomposed(const OpRow& row, const Node& node,
                                                      const std::vector<const HostTensor*>& inputs,
                                                      const std::vector<Type>& types) {
  Graph part;
  Builder b(&part);
  DecomposeContext d{b, node.attrs, {}, types};
  std::map<std::string, HostTensor> feeds;
  for (const HostTensor* input : inputs) {
    const std::string name = StrCat("x", d.inputs.size());
    d.inputs.push_back(input == nullptr ? Val() : b.Input(InputKind::kFeed, name, input->type()));
    if (input != nullptr) feeds.emplace(name, *input);
  }
  const std::vector<Val> outputs = row.decompose(d);
  RETURN_IF_ERROR(b.status());
  for (Val y : outputs) part.AddOutput(StrCat("y", part.outputs().size()), y.id());
  return Interpret(part, feeds);
}

absl::StatusOr<std::vector<HostTensor>> RunNode(const Node& node, const std::vector<const HostTensor*>& inputs,
                                                const std::vector<Type>& types) {
  const OpRow* row = FindOp(node.op);
  if (row == nullptr) return Invalid("unknown operator");
  if (row->evaluate != nullptr) return row->evaluate({node.attrs, inputs, types});
  if (row->decompose != nullptr) return RunDecomposed(*row, node, inputs, types);
  return absl::UnimplementedError("cannot be evaluated on the host");
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  std::vector<HostTensor> values(graph.values().size());
  for (const GraphInput& input : graph.inputs()) {
    auto it = inputs.find(input.name);
    if (it == inputs.end()) return Invalid("no value for input '", input.name, "'");
    if (!(it->second.type() == graph.type(input.value))) {
      return Invalid("input '", input.name, "' should be ", ToString(graph.type(input.value)), ", got ",
                     ToString(it->second.type()));
    }
    values[input.value] = it->second;
  }
  for (const Node& node : graph.nodes()) {
    std::vector<const HostTensor*> operands;
    std::vector<Type> types;
    for (ValueId v : node.inputs) operands.push_back(v == kNoValue ? nullptr : &values[v]);
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    auto results = RunNode(node, operands, types);
    if (!results.ok()) return Annotate(results.status(), NodeTag(node));
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = (*results)[i];
  }
  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : graph.outputs()) outputs.push_back(values[output.value]);
  return outputs;
}

}  // namespace onnxtrain
