#include "optim/parallel/graph_exchange.h"

#include "backends/collective_call.h"
#include "frontend/base/status.h"
#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

absl::StatusOr<std::unique_ptr<GraphExchange>> GraphExchange::Create(Collectives& ranks, int64_t number) {
  ASSIGN_OR_RETURN(auto group, NewGroupOfAll(ranks, StrCat("graph", number)));
  return std::unique_ptr<GraphExchange>(new GraphExchange(std::move(group)));
}

void GraphExchange::AddIteration(const absl::Status& ran) {
  --missing_;
  if (!ran.ok()) Break(ran);
}

void GraphExchange::Break(const absl::Status& why) {
  broken_ = true;
  ranks_->Close(why);
}

namespace {

// Null where the value is computed.
const std::byte* FindInput(const Graph& program, ValueId value, const Bindings& state) {
  if (!program.IsInput(value)) return nullptr;
  const auto found = state.find(program.inputs()[program.value(value).index].name);
  if (found == state.end()) return nullptr;
  return HostMemory(found->second);
}

}  // namespace

absl::Status GraphExchange::RunIdle(const Graph& program, const Bindings& state) {
  const auto run = [&]() -> absl::Status {
    for (const Node& node : program.nodes()) {
      if (!FindOp(node.op)->collective || node.op == kAwaitGather) continue;
      const Type &in = program.type(node.inputs[0]), &out = program.type(node.outputs[0]);
      const CollectiveCall call(node, in, out);
      const std::byte* own = FindInput(program, node.inputs[0], state);
      if (own == nullptr) {
        zeros_.assign(in.bytes(), std::byte{0});
        own = zeros_.data();
      }
      result_.resize(out.bytes());
      workspace_.resize(call.workspace());
      RETURN_IF_ERROR(Annotate(call.Run(ranks_.get(), own, result_.data(), workspace_.data()), NodeTag(node)));
    }
    return absl::OkStatus();
  };
  const absl::Status ran = run();
  AddIteration(ran);
  return ran;
}

}  // namespace onnxtrain
