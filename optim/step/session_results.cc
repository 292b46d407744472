// Computes the results of a session besides updates: evaluations, predictions, gradients, and the place of the first
// number that is not finite.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "optim/step/batch_feeds.h"
#include "optim/step/finite_check.h"
#include "optim/step/session_impl.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

HostTensor Divide(HostTensor tensor, double divisor) {
  for (int64_t i = 0; divisor != 1 && i < tensor.size(); ++i) tensor.Set(i, tensor.At(i) / divisor);
  return tensor;
}

}  // namespace

absl::StatusOr<Evaluation> SessionImpl::EvaluateAs(ProgramKind kind, const GlobalBatch& global_batch) {
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  CutMicros(global_batch);
  return EvaluateMicros(kind, global_batch, samples);
}

absl::StatusOr<Evaluation> SessionImpl::EvaluateMicros(ProgramKind kind, const GlobalBatch& global_batch,
                                                       int64_t samples) {
  int64_t micro = pending_.micros = 0;
  Evaluation e;
  DeviceScalars& device_scalars = state_.device_scalars();
  RETURN_IF_ERROR(WriteScalars(device_scalars.batch_loss, 0));
  RETURN_IF_ERROR(device_scalars.batch_correct.Write(0));
  for (const MicroBatch& m : micros_) {
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(CompiledBatchProgram * program, Get(kind, m.count, FindExtents(*m.part)));
    RETURN_IF_ERROR(program->feeds.Fill(*m.part, m.begin, m.count, Key(micro++)));
    const absl::Status ran = programs_.Run(*program->compiled);
    reducer_->EndProgram(program, ran);
    RETURN_IF_ERROR(ran);
    RETURN_IF_ERROR(AddMetrics(*program->compiled, &e.metrics));
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  RETURN_IF_ERROR(ReadScalars(device_scalars.batch_loss, &e.loss_sums));
  ASSIGN_OR_RETURN(e.correct, device_scalars.batch_correct.Read());
  RETURN_IF_ERROR(loss_denominators_->Count(global_batch, samples));
  e.weights = loss_denominators_->weights();
  e.targets = loss_denominators_->targets();
  return e;
}

absl::Status SessionImpl::AddMetrics(const CompiledProgram& program, MetricSums* sums) {
  for (size_t m = 0; m < metrics_.size(); ++m) {
    for (size_t stat = 0;; ++stat) {
      const auto output = program.outputs.find(MetricOutput(m, stat));
      if (output == program.outputs.end()) break;
      ASSIGN_OR_RETURN(const HostTensor tensor, ReadRegion(output->second));
      sums->Add(metrics_, m, stat, tensor);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> SessionImpl::Predict(const GlobalBatch& global_batch) {
  RETURN_IF_ERROR(shards_->CheckWholeWeights());
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, 0));
  if (!CountSamples(global_batch, options_.fixed_batch).ok()) return PredictPadded(global_batch, samples);
  Evaluation e;
  for (const MicroBatch& m : CutMicros(global_batch)) {
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(CompiledBatchProgram * program, Get(ProgramKind::kPredict, m.count, FindExtents(*m.part)));
    RETURN_IF_ERROR(program->feeds.Fill(*m.part, m.begin, m.count, Key(0)));
    RETURN_IF_ERROR(programs_.Run(*program->compiled));
    RETURN_IF_ERROR(AddOutputs(*program->compiled, m.place, m.count, samples, &e.outputs));
  }
  return e;
}

// Repeats the last sample until a fixed batch divides the samples, and drops its predictions.
absl::StatusOr<Evaluation> SessionImpl::PredictPadded(const GlobalBatch& global_batch, int64_t samples) {
  if (!global_batch.further().empty()) return CountSamples(global_batch, options_.fixed_batch).status();
  const int64_t whole = (samples + options_.fixed_batch - 1) / options_.fixed_batch * options_.fixed_batch;
  GlobalBatch padded = global_batch;
  for (size_t i = 0; i < padded.names()->size(); ++i) {
    const HostTensor& tensor = padded.tensor(i);
    if (tensor.type().rank() > 0 && tensor.shape()[0] == samples) padded.Set(i, RepeatLastRow(tensor, whole));
  }
  ASSIGN_OR_RETURN(Evaluation e, Predict(padded));
  for (auto& [name, output] : e.outputs) {
    if (output.type().rank() > 0 && output.shape()[0] == whole && !state_.bindings().contains(name))
      output = FirstRows(output, samples);
  }
  return e;
}

absl::StatusOr<GradientResult> SessionImpl::Gradients(const GlobalBatch& global_batch, GradientsOf of) {
  RETURN_IF_ERROR(reducer_->CheckWholeGradients());
  GradientResult result;
  const bool inputs = of == GradientsOf::kWeightsAndInputs;
  RETURN_IF_ERROR(RunMicros(global_batch, inputs ? ProgramKind::kMicroInputsFirst : ProgramKind::kMicroOutputsFirst,
                            &result.outputs));
  RETURN_IF_ERROR(backend_.Synchronize());
  ASSIGN_OR_RETURN(const double scale, ReadLossScale());
  for (const GraphInput& input : prepared_.model.graph.inputs()) {
    auto gradient = result.outputs.extract(GradName(input.name));
    if (gradient) result.input_gradients.emplace(input.name, Divide(std::move(gradient.mapped()), scale));
  }
  std::vector<double> losses;
  RETURN_IF_ERROR(ReadScalars(state_.device_scalars().batch_loss, &losses));
  result.loss = MeanLoss(prepared_.loss, losses, loss_denominators_->weights());
  RETURN_IF_ERROR(VisitPending(
      [&](const std::string& name, const HostTensor& gradient) { result.gradients.emplace(name, gradient); }));
  return result;
}

// Draws the random numbers of the previous update, which may have been the first one.
absl::StatusOr<std::string> SessionImpl::FindNonFinite(const GlobalBatch& global_batch) {
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  for (const MicroBatch& m : CutMicros(global_batch)) {
    const VariableExtents extents = FindExtents(*m.part);
    ASSIGN_OR_RETURN(const CompiledBatchProgram* program, RunMicro(ProgramKind::kFiniteCheck, m, Key(m.number)));
    std::map<std::string, HostTensor> norms;
    for (const auto& [name, region] : program->compiled->outputs) {
      ASSIGN_OR_RETURN(norms[name], ReadRegion(region));
    }
    ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareProgram(PrepareAt(options_, extents), m.count, true, false));
    ASSIGN_OR_RETURN(std::string where,
                     DescribeNonFinite(prepared.model, prepared.loss, options_.loss, m.count, norms));
    if (!where.empty()) return where;
  }
  return "";
}

absl::StatusOr<double> SessionImpl::ReadLossScale() {
  if (!options_.loss_scale) return 1;
  return state_.device_scalars().loss_scale.Read();
}

absl::Status SessionImpl::VisitPending(const GradientVisitor& visit) {
  ASSIGN_OR_RETURN(const double scale, ReadLossScale());
  for (const WeightDecision& w : prepared_.weights) {
    if (!w.trained) continue;
    ASSIGN_OR_RETURN(HostTensor gradient, ReadRegion(state_.bindings().at(GradName(w.name))));
    visit(w.name, Divide(std::move(gradient), scale));
  }
  return absl::OkStatus();
}

// Leaves pending gradients and statistics, which the next Step overwrites.
absl::Status SessionImpl::VisitGradients(const GlobalBatch& global_batch, const GradientVisitor& visit) {
  RETURN_IF_ERROR(reducer_->CheckWholeGradients());
  RETURN_IF_ERROR(RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr));
  RETURN_IF_ERROR(backend_.Synchronize());
  return VisitPending(visit);
}

absl::StatusOr<double> SessionImpl::TrainingLoss(const GlobalBatch& global_batch) {
  RETURN_IF_ERROR(shards_->CheckWholeWeights());
  ASSIGN_OR_RETURN(const Evaluation e, EvaluateAs(ProgramKind::kTrainingLoss, global_batch));
  return MeanLoss(prepared_.loss, e);
}

}  // namespace onnxtrain
