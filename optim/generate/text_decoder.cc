#include "optim/generate/text_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/passes/pipeline.h"
#include "optim/generate/decoder_form.h"
#include "optim/step/program/programs.h"
#include "optim/step/program/stored_weights.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

using CacheUse = TextDecoder::CacheUse;

constexpr int64_t kChunk = 64;  // tokens of a prompt that are computed together
constexpr char kLogits[] = "$logits", kRows[] = "$rows";

std::string NewName(size_t i) { return StrCat("$new.", i); }

const ModelInput& FindModelInput(const OnnxModel& model, const std::string& name) {
  return *std::ranges::find(model.inputs(), name, &ModelInput::name);
}

// Weights of a model on a device: those of a session that trains it, in place, or those of its file.
class DecoderWeights {
 public:
  DecoderWeights(std::shared_ptr<const OnnxModel> model, Backend* backend, const Session* session)
      : model_(std::move(model)), state_(*backend, DType::kFloat32), session_(session) {
    if (session == nullptr) return;
    for (const WeightDecision& weight : session->weights()) {
      if (weight.trained) trained_.insert(weight.name);
    }
  }

  const OnnxModel& model() const { return *model_; }
  const std::set<std::string>& trained() const { return trained_; }
  const Bindings& bindings() const { return bindings_; }

  // Adds the weights that are still missing, and drops their values from `imported`.
  absl::Status Add(ImportedModel* imported) {
    for (size_t i = 0; i < imported->graph.inputs().size(); ++i) {
      const InputKind kind = imported->graph.inputs()[i].kind;
      if (kind != InputKind::kFeed && kind != InputKind::kState) imported->graph.SetInputKind(i, InputKind::kFrozen);
    }
    std::erase_if(imported->weights, [&](const ImportedWeight& w) { return Share(w.name, imported->graph); });
    for (const ImportedWeight& w : imported->weights) {
      if (trained_.contains(w.name)) return Invalid("weight '", w.name, "' is trained in another type");
    }
    RETURN_IF_ERROR(state_.AddFrozen(*imported, *model_, true));
    bindings_.insert(state_.bindings().begin(), state_.bindings().end());
    imported->weights.clear();
    model_->ReleasePages();
    return absl::OkStatus();
  }

 private:
  // Returns true if the weight is read in the memory of the session.
  bool Share(const std::string& name, const Graph& graph) {
    if (session_ == nullptr) return false;
    const auto found = session_->regions().find(name);
    if (found == session_->regions().end()) return false;
    const Type& stored = found->second.type;
    const Type& type = graph.type(graph.FindInput(name)->value);
    if (stored != type && !IsStoredInBf16(stored, type)) return false;
    bindings_.insert(*found);
    return true;
  }

  const std::shared_ptr<const OnnxModel> model_;
  TrainingState state_;
  const Session* const session_;
  std::set<std::string> trained_;
  Bindings bindings_;
};

// Returns the rows `rows` of [batch · length, tokens], for x [batch, length, tokens]. If x is a product with a matrix
// of weights, only these rows are multiplied.
Val SelectRows(Val x, Val rows) {
  const auto select = [&](Val v) { return Gather(Reshape(v, {v.dim(0) * v.dim(1), v.dim(2)}), rows, 0); };
  const Node* product = x.b().graph().producer(x.id());
  const bool multiplies = product != nullptr && (product->op == "MatMul" || product->op == "MatMulDequantized");
  if (!multiplies || product->attrs.Int("trans_a") != 0) return select(x);
  std::vector<Val> operands;
  for (const ValueId v : product->inputs) operands.push_back(x.b().Wrap(v));
  if (operands[0].rank() != 3 || operands[1].rank() != 2) return select(x);
  const std::string op = product->op;  // appending nodes invalidates `product`
  const Attrs attrs = product->attrs;
  operands[0] = select(operands[0]);
  return x.b().Op(op, operands, attrs);
}

// Returns the cache followed by the new keys or values if the model only sorts these by position; otherwise invalid.
Val FindUnsorted(Val present, const CacheTensor& cache) {
  const Graph& graph = present.b().graph();
  const Node* sort = graph.producer(present.id());
  if (sort != nullptr && sort->op == "Cast") sort = graph.producer(sort->inputs[0]);
  if (sort == nullptr || sort->op != "GatherElements" || sort->attrs.Int("axis") != cache.length_axis) return Val();
  const Node* both = graph.producer(sort->inputs[0]);
  const bool joins = both != nullptr && both->op == "Concat" && both->attrs.Int("axis") == cache.length_axis;
  return joins ? present.b().Wrap(sort->inputs[0]) : Val();
}

// The programs of one use of the cache.
class Decoder : public TextDecoder {
 public:
  Decoder(DecoderForm form, std::shared_ptr<DecoderWeights> weights, Backend* backend, const DecoderOptions& options,
          CacheUse use)
      : form_(std::move(form)),
        weights_(std::move(weights)),
        backend_(*backend),
        options_(options),
        use_(use),
        programs_(backend, options.compute, false),
        tokens_(options.rows) {}

  absl::Status Init() {
    capacity_ = options_.capacity;
    if (options_.exact_length > 0) capacity_ = std::min(capacity_, options_.exact_length);
    const int64_t beside = caches() ? kChunk : 0;  // positions of the new tokens, which follow those of the cache
    if (options_.greatest_length > 0) capacity_ = std::min(capacity_, options_.greatest_length - beside);
    if (capacity_ < 1) return Invalid("the model has ", options_.greatest_length, " positions, too few for a cache");
    return caches() ? MakeCache(std::min(capacity_, options_.first_capacity)) : absl::OkStatus();
  }

  absl::Status Append(std::span<const std::vector<int64_t>> tokens) override {
    for (size_t row = 0; row < tokens.size(); ++row) {
      if (std::ssize(tokens_[row]) + std::ssize(tokens[row]) > capacity_)
        return absl::OutOfRangeError(StrCat("the text is longer than ", capacity_, " tokens"));
    }
    if (!caches()) return ComputeAll(tokens);
    RETURN_IF_ERROR(MakeRoom(tokens));
    return AppendToCache(tokens);
  }

  std::span<const float> logits(int64_t row) const override { return std::span(logits_).subspan(row * width_, width_); }
  void Truncate(int64_t row, int64_t length) override { tokens_[row].resize(length); }
  void WeightsChanged() override {
    programs_.WeightsChanged();
    for (std::vector<int64_t>& row : tokens_) row.clear();
  }
  void set_filler(int64_t id) { filler_ = id; }
  // The shapes of the cache with the batch in front; the length is that of the last program.
  const std::map<std::string, Shape>& cache_shapes() const { return cache_shapes_; }
  void set_cache_shapes(std::map<std::string, Shape> shapes) { cache_shapes_ = std::move(shapes); }
  int64_t length(int64_t row) const override { return std::ssize(tokens_[row]); }
  int64_t rows() const override { return options_.rows; }
  CacheUse cache_use() const override { return use_; }
  int64_t capacity() const override { return capacity_; }

 private:
  // A program for `tokens` tokens of each row, behind those in the cache.
  struct Step {
    int64_t tokens = 0;
    std::unique_ptr<CompiledProgram> program;
    std::map<std::string, HostTensor> feeds;
    HostTensor *ids, *positions, *mask, *padding, *pair_mask, *rows;  // among the feeds; null: there is none
    std::vector<const Region*> fresh;                                 // what each cache tensor gets
    const Region* scores = nullptr;                                   // null: only the cache is filled

    HostTensor* Find(const std::string& name) {
      const auto found = feeds.find(name);
      return found == feeds.end() ? nullptr : &found->second;
    }
    const Region* FindOutput(const std::string& name) const {
      const auto found = program->outputs.find(name);
      return found == program->outputs.end() ? nullptr : &found->second;
    }
  };

  bool caches() const { return use_ != CacheUse::kNone; }
  int64_t past() const { return caches() ? room_ : 0; }

  // Makes a cache for `room` tokens of each row, and programs that use it.
  absl::Status MakeCache(int64_t room) {
    room_ = room;
    cache_ = Arena();
    ASSIGN_OR_RETURN(chunk_, Compile(kChunk, false));
    ASSIGN_OR_RETURN(one_, Compile(1, true));
    return absl::OkStatus();
  }

  // Doubles the cache until it has room for the tokens. Each step reads all of it.
  absl::Status MakeRoom(std::span<const std::vector<int64_t>> tokens) {
    int64_t room = room_;
    for (size_t row = 0; row < tokens.size(); ++row) {
      while (room < std::ssize(tokens_[row]) + std::ssize(tokens[row])) room *= 2;
    }
    if (room == room_) return absl::OkStatus();
    const Arena before = std::move(cache_);
    for (std::unique_ptr<Step>* step : {&chunk_, &one_}) {
      programs_.Release(*(*step)->program);
      step->reset();
    }
    RETURN_IF_ERROR(MakeCache(std::min(room, capacity_)));
    for (size_t row = 0; row < tokens_.size(); ++row) {
      for (const CacheTensor& cache : form_.cache)
        RETURN_IF_ERROR(CopyKeys(before.At(cache.past), cache, static_cast<int64_t>(row), {0, 0, length(row)}));
    }
    return absl::OkStatus();
  }

  ImportOptions MakeImport(int64_t tokens) const {
    const int64_t rows = options_.rows, keys = past() + tokens;
    ImportOptions import{.batch = rows};
    import.float_weights = weights_->trained();
    import.input_shapes[form_.ids] = {rows, tokens};
    for (const std::string& name : {form_.mask, form_.padding}) {
      if (!name.empty()) import.input_shapes[name] = {rows, keys};
    }
    if (!form_.positions.empty()) import.input_shapes[form_.positions] = {rows, tokens};
    if (!form_.pair_mask.empty()) {
      Shape shape = FindModelInput(weights_->model(), form_.pair_mask).dims;
      shape.front() = rows;
      if (shape.size() == 4 && shape[1] < 0) shape[1] = 1;
      shape[shape.size() - 2] = tokens;
      shape.back() = keys;
      import.input_shapes[form_.pair_mask] = shape;
    }
    FixInputs(tokens, &import);
    for (const CacheTensor& cache : form_.cache) AddCache(cache, &import);
    for (const CacheTensor& cache : form_.empty_cache) FixEmpty(cache, &import);
    return import;
  }

  void FixInputs(int64_t tokens, ImportOptions* import) const {
    const auto fix = [&](const std::string& name, Shape shape) -> HostTensor& {
      const DType type = FindModelInput(weights_->model(), name).dtype;
      return import->fixed_inputs[name] = HostTensor({type, std::move(shape)});
    };
    for (const std::string& name : form_.zeros) {
      const size_t rank = FindModelInput(weights_->model(), name).dims.size();
      fix(name, rank == 2 ? Shape{options_.rows, tokens} : Shape(rank, 1));
      import->batch_axes[name] = rank == 2 ? 0 : kNoBatchAxis;
    }
    if (!form_.order.empty()) {
      HostTensor& order = fix(form_.order, {tokens});
      for (int64_t i = 0; i < tokens; ++i) order.SetInt(i, past() + i);
      import->batch_axes[form_.order] = kNoBatchAxis;
    }
    if (form_.branch.empty()) return;
    fix(form_.branch, Shape(FindModelInput(weights_->model(), form_.branch).dims.size(), 1)).SetInt(0, caches());
    import->batch_axes[form_.branch] = kNoBatchAxis;
  }

  void AddCache(const CacheTensor& cache, ImportOptions* import) const {
    if (!caches()) return FixEmpty(cache, import);
    Shape shape = cache_shapes_.at(cache.past);
    shape[cache.length_axis] = past();
    import->input_shapes[cache.past] = std::move(shape);
    import->batch_axes[cache.past] = import->batch_axes[cache.present] = cache.batch_axis;
  }

  static void FixEmpty(const CacheTensor& cache, ImportOptions* import) {
    import->fixed_inputs[cache.past] = cache.empty;
    import->batch_axes[cache.past] = cache.batch_axis;
  }

  absl::StatusOr<std::unique_ptr<Step>> Compile(int64_t tokens, bool scores) {
    ASSIGN_OR_RETURN(ImportedModel imported, Import(weights_->model(), MakeImport(tokens)));
    for (const CacheTensor& cache : form_.cache)
      cache_shapes_[cache.past] = imported.graph.type(imported.graph.FindOutput(cache.present)->value).shape;
    ASSIGN_OR_RETURN(imported.graph, Canonicalize(std::move(imported.graph)));
    RETURN_IF_ERROR(weights_->Add(&imported));
    ASSIGN_OR_RETURN(const Graph graph, MakeGraph(imported, tokens, scores));
    auto step = std::make_unique<Step>();
    step->tokens = tokens;
    ASSIGN_OR_RETURN(step->program, programs_.Compile(graph, cache_bindings_, weights_->bindings()));
    for (const auto& [name, region] : step->program->feeds) step->feeds[name] = HostTensor(region.type);
    step->ids = step->Find(form_.ids), step->positions = step->Find(form_.positions);
    step->mask = step->Find(form_.mask), step->padding = step->Find(form_.padding);
    step->pair_mask = step->Find(form_.pair_mask), step->rows = step->Find(kRows);
    step->scores = step->FindOutput(kLogits);
    for (size_t i = 0; caches() && i < form_.cache.size(); ++i) step->fresh.push_back(step->FindOutput(NewName(i)));
    return step;
  }

  absl::StatusOr<Graph> MakeGraph(const ImportedModel& imported, int64_t tokens, bool scores) {
    Graph graph = imported.graph;
    graph.ClearOutputs();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const bool cached = caches() && std::ranges::count(form_.cache, graph.inputs()[i].name, &CacheTensor::past) > 0;
      if (cached) graph.SetInputKind(i, InputKind::kState);
    }
    RETURN_IF_ERROR(AllocateCache(graph));
    Builder b(&graph);
    if (caches()) AddNewKeys(imported, tokens, &b);
    if (scores) RETURN_IF_ERROR(AddScores(imported, tokens, &b));
    RETURN_IF_ERROR(b.status());
    return graph;
  }

  // Adds an output for the keys or values that the cache gets: those of the new tokens, or all in order if the new ones
  // cannot be found.
  void AddNewKeys(const ImportedModel& imported, int64_t tokens, Builder* b) const {
    for (size_t i = 0; i < form_.cache.size(); ++i) {
      const CacheTensor& cache = form_.cache[i];
      Val present = b->Wrap(imported.graph.FindOutput(cache.present)->value);
      const Val unsorted = use_ == CacheUse::kOrdered ? FindUnsorted(present, cache) : present;
      if (unsorted) present = Slice(unsorted, cache.length_axis, past(), tokens);
      const Region& memory = cache_bindings_.at(cache.past);
      b->graph().AddOutput(NewName(i), Cast(present, memory.type.dtype).id());
    }
  }

  absl::Status AddScores(const ImportedModel& imported, int64_t tokens, Builder* b) {
    const auto is_logits = [&](const std::string& name) {
      if (!options_.logits.empty()) return name == options_.logits;
      const Type& type = imported.graph.type(imported.graph.FindOutput(name)->value);
      const bool present = std::ranges::count(form_.cache, name, &CacheTensor::present) > 0;
      return !present && IsFloat(type.dtype) && type.rank() == 3 && type.shape[1] == tokens;
    };
    const auto found = std::ranges::find_if(imported.outputs, is_logits);
    if (found == imported.outputs.end())
      return Invalid(weights_->model().path(), ": has no output [batch, length, tokens] of the next token's scores");
    const Val all = b->Wrap(imported.graph.FindOutput(*found)->value);
    if (all.rank() != 3) return Invalid("output '", *found, "' is no score per token: ", ToString(all.type()));
    width_ = all.dim(2);
    logits_.resize(options_.rows * width_);
    const Val rows = b->Input(InputKind::kFeed, kRows, {DType::kInt64, {options_.rows}});
    const Val chosen = SelectRows(all, rows);
    b->graph().AddOutput(kLogits, Cast(chosen, DType::kFloat32).id());
    return absl::OkStatus();
  }

  absl::Status AllocateCache(const Graph& graph) {
    if (!caches() || cache_.buffer() != nullptr) return absl::OkStatus();
    for (const CacheTensor& cache : form_.cache) {
      const GraphInput* input = graph.FindInput(cache.past);
      if (input == nullptr) return Invalid("the cache '", cache.past, "' is not used");
      cache_.Add(cache.past, graph.type(input->value));
    }
    RETURN_IF_ERROR(cache_.Allocate(backend_, "the cache of keys and values"));
    for (const std::string& name : cache_.names()) cache_bindings_[name] = cache_.At(name);
    return absl::OkStatus();
  }

  absl::Status AppendToCache(std::span<const std::vector<int64_t>> tokens) {
    std::vector<std::vector<int64_t>> part(options_.rows);
    for (size_t done = 0;; done += kChunk) {
      bool any = false;
      for (size_t row = 0; row < part.size(); ++row) {
        const size_t end = tokens[row].empty() ? 0 : tokens[row].size() - 1;  // the last one needs scores
        const size_t first = std::min(done, end), last = std::min(done + kChunk, end);
        part[row].assign(tokens[row].begin() + static_cast<ptrdiff_t>(first),
                         tokens[row].begin() + static_cast<ptrdiff_t>(last));
        any = any || !part[row].empty();
      }
      if (!any) break;
      RETURN_IF_ERROR(Run(*chunk_, part));
    }
    for (size_t row = 0; row < part.size(); ++row)
      part[row].assign(tokens[row].end() - (tokens[row].empty() ? 0 : 1), tokens[row].end());
    return Run(*one_, part);
  }

  absl::Status ComputeAll(std::span<const std::vector<int64_t>> tokens) {
    size_t longest = 1;
    for (size_t row = 0; row < tokens.size(); ++row)
      longest = std::max(longest, tokens_[row].size() + tokens[row].size());
    int64_t length = options_.exact_length > 0 ? options_.exact_length : 16;
    while (options_.exact_length == 0 && length < static_cast<int64_t>(longest)) length *= 2;
    if (options_.exact_length == 0 && options_.greatest_length > 0) length = std::min(length, options_.greatest_length);
    std::unique_ptr<Step>& step = by_length_[length];
    if (step == nullptr) {
      ASSIGN_OR_RETURN(step, Compile(length, true));
    }
    return Run(*step, tokens);
  }

  // Computes the tokens of each row behind those that it has, or with them if there is no cache.
  absl::Status Run(Step& step, std::span<const std::vector<int64_t>> tokens) {
    RETURN_IF_ERROR(Fill(step, tokens));
    RETURN_IF_ERROR(programs_.Run(*step.program));
    RETURN_IF_ERROR(backend_.Synchronize());
    if (step.scores != nullptr) RETURN_IF_ERROR(ReadScores(*step.scores, tokens));
    for (size_t row = 0; row < tokens.size(); ++row) {
      RETURN_IF_ERROR(StoreKeys(step, static_cast<int64_t>(row), std::ssize(tokens[row])));
      tokens_[row].insert(tokens_[row].end(), tokens[row].begin(), tokens[row].end());
    }
    return absl::OkStatus();
  }

  absl::Status Fill(Step& step, std::span<const std::vector<int64_t>> tokens) {
    for (int64_t row = 0; row < options_.rows; ++row) {
      FillTokens(step, row, tokens[row]);
      FillMasks(step, row);
    }
    for (const auto& [name, value] : step.feeds) RETURN_IF_ERROR(WriteRegion(step.program->feeds.at(name), value));
    return absl::OkStatus();
  }

  void FillTokens(Step& step, int64_t row, const std::vector<int64_t>& fresh) const {
    const std::vector<int64_t>& before = tokens_[row];
    const int64_t used = std::ssize(before), first = caches() ? used : 0, end = used + std::ssize(fresh);
    for (int64_t i = 0; i < step.tokens; ++i) {
      const int64_t place = first + i;
      const int64_t id = place < used ? before[place] : place < end ? fresh[place - used] : filler_;
      Set(step.ids, row * step.tokens + i, id);
      Set(step.positions, row * step.tokens + i, place);
    }
    Set(step.rows, row, row * step.tokens + std::max<int64_t>(end - first - 1, 0));
  }

  void FillMasks(Step& step, int64_t row) const {
    const int64_t keys = past() + step.tokens, first = caches() ? std::ssize(tokens_[row]) : 0;
    const auto is_key = [&](int64_t k) {
      return use_ == CacheUse::kOrdered ? k < first + step.tokens : k < first || k >= past();
    };
    for (int64_t k = 0; k < keys; ++k) {
      Set(step.mask, row * keys + k, is_key(k) ? 1 : 0);
      Set(step.padding, row * keys + k, is_key(k) ? 0 : 1);
    }
    if (step.pair_mask == nullptr) return;
    const bool additive = IsFloat(step.pair_mask->dtype());
    const double seen = additive ? 0 : 1, hidden = additive ? std::numeric_limits<float>::lowest() : 0;
    const int64_t pairs = step.pair_mask->size() / options_.rows;
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t query = i / keys % step.tokens, k = i % keys;
      step.pair_mask->Set(row * pairs + i, is_key(k) && k - past() <= query ? seen : hidden);
    }
  }

  static void Set(HostTensor* feed, int64_t i, int64_t value) {
    if (feed != nullptr) feed->SetInt(i, value);
  }

  absl::Status ReadScores(const Region& region, std::span<const std::vector<int64_t>> tokens) {
    ASSIGN_OR_RETURN(const HostTensor scores, ReadRegion(region));
    for (size_t row = 0; row < tokens.size(); ++row) {
      const auto begin = scores.data<float>().begin() + static_cast<ptrdiff_t>(row) * width_;
      if (!tokens[row].empty()) std::copy_n(begin, width_, logits_.begin() + static_cast<ptrdiff_t>(row) * width_);
    }
    return absl::OkStatus();
  }

  // Copies the keys and values of the first `count` new tokens of a row into the cache.
  absl::Status StoreKeys(const Step& step, int64_t row, int64_t count) {
    if (!caches() || count == 0) return absl::OkStatus();
    const int64_t used = std::ssize(tokens_[row]);
    for (size_t i = 0; i < form_.cache.size(); ++i) {
      const Region& fresh = *step.fresh[i];
      const bool all = fresh.type.shape[form_.cache[i].length_axis] > step.tokens;  // in order, not only the new ones
      RETURN_IF_ERROR(CopyKeys(fresh, form_.cache[i], row, {all ? used : 0, used, count}));
    }
    return absl::OkStatus();
  }

  struct Copied {
    int64_t from, to, count;  // tokens
  };

  // Copies keys or values of a row into the cache.
  absl::Status CopyKeys(const Region& from, const CacheTensor& cache, int64_t row, Copied tokens) {
    if (tokens.count == 0) return absl::OkStatus();
    const Region& to = cache_bindings_.at(cache.past);
    const auto axis = static_cast<ptrdiff_t>(cache.length_axis);
    const auto extents = to.type.shape.begin();
    const int64_t blocks = NumElements(Shape(extents + 1, extents + axis));
    const auto bytes =
        static_cast<int64_t>(NumElements(Shape(extents + axis + 1, to.type.shape.end())) * DTypeSize(to.type.dtype));
    buffer_.resize(tokens.count * bytes);
    for (int64_t block = row * blocks; block < (row + 1) * blocks; ++block) {
      const int64_t read = (block * from.type.shape[axis] + tokens.from) * bytes;
      const int64_t written = (block * to.type.shape[axis] + tokens.to) * bytes;
      RETURN_IF_ERROR(from.view.buffer->Read(from.view.offset + read, buffer_));
      RETURN_IF_ERROR(to.view.buffer->Write(to.view.offset + written, buffer_));
    }
    return absl::OkStatus();
  }

  const DecoderForm form_;
  const std::shared_ptr<DecoderWeights> weights_;
  Backend& backend_;
  const DecoderOptions options_;
  const CacheUse use_;
  std::map<std::string, Shape> cache_shapes_;  // by input
  int64_t capacity_ = 0, room_ = 0;            // tokens of a row: at most, and in the memory of the cache
  int64_t filler_ = 0;                         // the token behind those of a row, which no token sees
  Arena cache_;
  Bindings cache_bindings_;
  Programs programs_;
  std::unique_ptr<Step> chunk_, one_;
  std::map<int64_t, std::unique_ptr<Step>> by_length_;
  std::vector<std::vector<int64_t>> tokens_;  // by row
  int64_t width_ = 0;                         // tokens of the vocabulary
  std::vector<float> logits_;
  std::vector<std::byte> buffer_;
};

constexpr std::array<int64_t, 5> kTrialTokens = {3, 1, 4, 2, 5};

// Returns the scores behind the trial tokens: the first ones are appended together, the others one by one.
absl::StatusOr<std::vector<float>> ScoreTrial(Decoder& decoder, const DecoderOptions& options, int64_t filler) {
  constexpr int64_t kTogether = 3;
  const int64_t ids = options.vocabulary > 0 ? options.vocabulary : kTrialTokens.size() + 1;
  decoder.set_filler(filler % ids);
  std::vector<float> scores;
  std::vector<std::vector<int64_t>> tokens(options.rows);
  for (int64_t i = 0; i < std::min<int64_t>(kTrialTokens.size(), decoder.capacity()); ++i) {
    tokens[0].push_back(kTrialTokens[i] % ids);
    if (i + 1 < kTogether) continue;
    RETURN_IF_ERROR(decoder.Append(tokens));
    scores.insert(scores.end(), decoder.logits(0).begin(), decoder.logits(0).end());
    tokens[0].clear();
  }
  decoder.Truncate(0, 0);
  decoder.set_filler(0);
  return scores;
}

bool Agree(std::span<const float> a, std::span<const float> b, double tolerance) {
  double difference = 0, greatest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference = std::max<double>(difference, std::abs(a[i] - b[i]));
    greatest = std::max<double>(greatest, std::abs(b[i]));
  }
  return difference <= tolerance * greatest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextDecoder>> TextDecoder::Create(const std::shared_ptr<const OnnxModel>& model,
                                                                 Backend* backend, const Session* session,
                                                                 const DecoderOptions& options) {
  ASSIGN_OR_RETURN(const DecoderForm form, FindDecoderForm(*model));
  const double tolerance = options.compute == DType::kFloat32 ? 1e-4 : 3e-2;
  const auto shared = std::make_shared<DecoderWeights>(model, backend, session);
  auto plain = std::make_unique<Decoder>(form, shared, backend, options, CacheUse::kNone);
  RETURN_IF_ERROR(plain->Init());
  ASSIGN_OR_RETURN(const std::vector<float> expected, ScoreTrial(*plain, options, 0));
  ASSIGN_OR_RETURN(const std::vector<float> other, ScoreTrial(*plain, options, 6));
  if (!Agree(other, expected, tolerance))
    return Invalid(model->path(), ": writes no text, since its predictions depend on later tokens");
  for (const CacheUse use : {CacheUse::kAppended, CacheUse::kOrdered}) {
    if (form.cache.empty()) break;
    auto decoder = std::make_unique<Decoder>(form, shared, backend, options, use);
    decoder->set_cache_shapes(plain->cache_shapes());
    const absl::Status made = decoder->Init();
    if (absl::IsResourceExhausted(made)) return made;
    if (!made.ok()) continue;
    ASSIGN_OR_RETURN(const std::vector<float> scores, ScoreTrial(*decoder, options, 0));
    if (Agree(scores, expected, tolerance)) return decoder;
  }
  return plain;
}

}  // namespace onnxtrain
