#include "backends/memory_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "backends/arena_packing.h"
#include "backends/dataflow.h"
#include "backends/node_order.h"
#include "frontend/base/log.h"

namespace onnxtrain {
namespace {

using Where = Place::Where;

size_t Aligned(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// The memory layout that follows from one order.
struct ArenaLayout {
  std::vector<int32_t> order;
  std::vector<ValueId> buffer_root;  // by root: the root whose buffer it reuses, or itself
  std::vector<Place> bound;          // by buffer root: outside the arena, or kNone
  std::vector<int32_t> block;        // by buffer root: index of its block, or −1
  std::vector<int32_t> workspace;    // by node: index of its block, or −1
  std::vector<Block> blocks;
  size_t peak_live_bytes = 0;
};

class ArenaLayoutBuilder {
 public:
  ArenaLayoutBuilder(const Dataflow& flow, const PlanOptions& options, std::vector<int32_t> order)
      : flow_(flow), options_(options), graph_(*flow.graph) {
    layout_.order = std::move(order);
    layout_.bound = flow.bound;
  }

  ArenaLayout Make() {
    ComputeLiveRanges();
    layout_.buffer_root.resize(flow_.root.size());
    for (size_t v = 0; v < layout_.buffer_root.size(); ++v) layout_.buffer_root[v] = static_cast<ValueId>(v);
    if (options_.reuse) {
      for (size_t step = 0; step < layout_.order.size(); ++step) ReuseInputBuffers(static_cast<int32_t>(step));
    }
    MakeBlocks();
    layout_.peak_live_bytes = PeakLiveBytes(layout_.blocks);
    return std::move(layout_);
  }

 private:
  int32_t end() const { return static_cast<int32_t>(layout_.order.size()); }  // the step of the final copies

  void ComputeLiveRanges() {
    first_.assign(flow_.root.size(), -1);
    last_.assign(flow_.root.size(), -1);
    std::vector<int32_t> step_of(flow_.rows.size(), -1);
    for (int32_t s = 0; s < end(); ++s) step_of[layout_.order[s]] = s;
    for (ValueId v = 0; v < static_cast<ValueId>(flow_.root.size()); ++v) {
      const int32_t producer = graph_.value(v).node;
      if (flow_.root[v] != v) continue;
      first_[v] = producer >= 0 ? step_of[producer] : 0;
      last_[v] = flow_.is_output[v] ? end() : first_[v];
      for (int32_t n : flow_.readers[v]) last_[v] = std::max(last_[v], step_of[n]);
    }
  }

  // Lets outputs reuse the buffers of inputs that die at their node.
  void ReuseInputBuffers(int32_t step) {
    const int32_t n = layout_.order[step];
    std::vector<ValueId> taken;
    for (ValueId out : graph_.nodes()[n].outputs) {
      for (ValueId in : graph_.nodes()[n].inputs) {
        if (in == kNoValue) continue;
        const ValueId r = flow_.root[in];
        if (std::find(taken.begin(), taken.end(), r) != taken.end() || !CanReuseInputBuffer(n, step, out, r)) continue;
        taken.push_back(r);
        layout_.buffer_root[out] = FindRoot(r);
        if (layout_.bound[out].where == Where::kOutput) layout_.bound[FindRoot(r)] = layout_.bound[out];
        last_[FindRoot(r)] = std::max(last_[FindRoot(r)], last_[out]);
        break;
      }
    }
  }

  // Returns true if `out` may reuse the buffer of `r`, which must be in the arena and die in this step. If `out` is
  // bound to the memory of an output, `r` moves there too: nothing reads that memory before the end of the run.
  bool CanReuseInputBuffer(int32_t n, int32_t step, ValueId out, ValueId r) {
    const bool free_to_choose = layout_.bound[out].where == Where::kNone || layout_.bound[out].where == Where::kOutput;
    return free_to_choose && layout_.bound[FindRoot(r)].where == Where::kNone && last_[FindRoot(r)] == step &&
           flow_.CanOverwrite(n, out, r);
  }

  ValueId FindRoot(ValueId r) const {
    while (layout_.buffer_root[r] != r) r = layout_.buffer_root[r];
    return r;
  }

  void MakeBlocks() {
    layout_.block.assign(flow_.root.size(), -1);
    for (ValueId v = 0; v < static_cast<ValueId>(flow_.root.size()); ++v) {
      layout_.buffer_root[v] = FindRoot(v);
      if (layout_.buffer_root[v] != v || flow_.root[v] != v || first_[v] < 0 || layout_.bound[v].where != Where::kNone)
        continue;
      layout_.block[v] = static_cast<int32_t>(layout_.blocks.size());
      const int32_t last = options_.reuse ? last_[v] : end();
      layout_.blocks.push_back({.bytes = Aligned(graph_.type(v).bytes(), options_.alignment),
                                .first = options_.reuse ? first_[v] : 0,
                                .last = last});
    }
    layout_.workspace.assign(flow_.rows.size(), -1);
    if (options_.workspace_bytes.empty()) return;
    for (int32_t s = 0; s < end(); ++s) {
      const size_t bytes = Aligned(options_.workspace_bytes[layout_.order[s]], options_.alignment);
      if (bytes == 0) continue;
      layout_.workspace[layout_.order[s]] = static_cast<int32_t>(layout_.blocks.size());
      layout_.blocks.push_back({.bytes = bytes, .first = s, .last = s});
    }
  }

  const Dataflow& flow_;
  const PlanOptions& options_;
  const Graph& graph_;
  ArenaLayout layout_;
  std::vector<int32_t> first_, last_;  // by root: steps
};

// Returns the live bytes, summed over the steps.
double SumLiveBytes(const std::vector<Block>& blocks) {
  double sum = 0;
  for (const Block& block : blocks) sum += static_cast<double>(block.bytes) * (block.last - block.first + 1);
  return sum;
}

ArenaLayout FindBestLayout(const Dataflow& flow, const PlanOptions& options) {
  std::vector<ArenaLayout> layouts;
  for (auto& order : CandidateOrders(flow, options.workspace_bytes))
    layouts.push_back(ArenaLayoutBuilder(flow, options, std::move(order)).Make());
  const size_t lowest = std::ranges::min(layouts, {}, &ArenaLayout::peak_live_bytes).peak_live_bytes;
  std::erase_if(layouts, [&](const ArenaLayout& layout) {
    return static_cast<double>(layout.peak_live_bytes) > static_cast<double>(lowest) * (1 + options.peak_slack);
  });
  const auto sum = [](const ArenaLayout& layout) { return SumLiveBytes(layout.blocks); };
  return std::move(*std::ranges::min_element(layouts, {}, sum));
}

Place GetOutputPlace(const Graph& graph, size_t o) {
  const ValueId into = graph.outputs()[o].into;
  if (into != kNoValue) return {.where = Where::kInput, .index = graph.value(into).index};
  return {.where = Where::kOutput, .index = static_cast<int32_t>(o)};
}

std::vector<Copy> MakeFinalCopies(const Graph& graph, const std::vector<Place>& places) {
  std::vector<Copy> copies;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const ValueId value = graph.outputs()[o].value;
    const Copy copy{.from = places[value], .to = GetOutputPlace(graph, o), .bytes = graph.type(value).bytes()};
    if (copy.from != copy.to && copy.bytes > 0) copies.push_back(copy);
  }
  return copies;
}

// Returns the indices of copies whose source is an input that a copy overwrites.
std::vector<size_t> FindClobbered(const std::vector<Copy>& copies) {
  std::unordered_set<int32_t> overwritten;  // graph inputs
  for (const Copy& copy : copies) {
    if (copy.to.where == Where::kInput) overwritten.insert(copy.to.index);
  }
  std::vector<size_t> found;
  for (size_t c = 0; c < copies.size(); ++c) {
    if (copies[c].from.where == Where::kInput && overwritten.contains(copies[c].from.index)) found.push_back(c);
  }
  return found;
}

// Inserts copies that save the sources of clobbered copies in the arena first.
void StageCopies(const std::vector<size_t>& clobbered, const std::vector<Place>& stages, std::vector<Copy>* copies) {
  std::vector<Copy> moves;
  for (size_t i = 0; i < clobbered.size(); ++i) {
    Copy& copy = (*copies)[clobbered[i]];
    moves.push_back({.from = copy.from, .to = stages[i], .bytes = copy.bytes});
    copy.from = stages[i];
  }
  copies->insert(copies->begin(), moves.begin(), moves.end());
}

// Returns the steps that touch each block, ascending.
std::vector<std::vector<int32_t>> FindUses(const Dataflow& flow, const ArenaLayout& layout) {
  std::vector<std::vector<int32_t>> uses(layout.blocks.size());
  const auto touch = [&](ValueId v, int32_t step) {
    const int32_t block = v == kNoValue ? -1 : layout.block[layout.buffer_root[flow.root[v]]];
    if (block >= 0 && (uses[block].empty() || uses[block].back() != step)) uses[block].push_back(step);
  };
  for (int32_t s = 0; s < std::ssize(layout.order); ++s) {
    const Node& node = flow.graph->nodes()[layout.order[s]];
    if (flow.IsView(layout.order[s])) continue;
    for (ValueId v : node.inputs) touch(v, s);
    for (ValueId v : node.outputs) touch(v, s);
  }
  for (const GraphOutput& output : flow.graph->outputs())
    touch(output.value, static_cast<int32_t>(layout.order.size()));
  return uses;
}

// The offsets of blocks in the arena and in the area for offloaded values.
struct Areas {
  Packing arena, offloads;  // blocks of the other area take no bytes
  std::vector<OffloadedBlock> offloaded;
  size_t resident = 0;  // PeakResidentBytes of the offloaded blocks
};

Areas PackAreas(std::vector<Block> arena, std::vector<OffloadedBlock> offloaded) {
  constexpr size_t kPage = 4096;
  std::vector<Block> area = arena;
  for (Block& block : area) block.bytes = 0;
  for (const OffloadedBlock& o : offloaded) {
    area[o.block].bytes = Aligned(arena[o.block].bytes, kPage);
    arena[o.block].bytes = 0;
  }
  const size_t resident = PeakResidentBytes(area, offloaded);
  return {PackBlocks(arena), PackBlocks(area), std::move(offloaded), resident};
}

// Offloads until the areas are within the limit, or take the least. Lowers the target where packing takes
// more than the live bytes.
Areas PackWithin(const Dataflow& flow, const ArenaLayout& layout, OffloadOptions options) {
  const size_t limit = options.memory_limit;
  Areas areas = PackAreas(layout.blocks, {});
  if (areas.arena.total <= limit) return areas;
  auto uses = FindUses(flow, layout);
  uses.resize(layout.blocks.size());
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    areas = PackAreas(layout.blocks, ChooseOffloaded(layout.blocks, uses, options));
    const size_t bytes = areas.arena.total + areas.resident;
    if (bytes <= limit) break;
    options.memory_limit -= std::min(options.memory_limit, bytes - limit);
  }
  return areas;
}

Place GetPlace(const Dataflow& flow, const ArenaLayout& layout, const std::vector<Place>& blocks, ValueId v) {
  const ValueId buffer_root = layout.buffer_root[flow.root[v]];
  if (layout.bound[buffer_root].where != Where::kNone) return layout.bound[buffer_root];
  return layout.block[buffer_root] < 0 ? Place{} : blocks[layout.block[buffer_root]];
}

// `blocks`: the places of the layout's blocks.
std::vector<Place> GetPlaces(const Dataflow& flow, const ArenaLayout& layout, const std::vector<Place>& blocks) {
  std::vector<Place> places(flow.root.size());
  for (size_t v = 0; v < places.size(); ++v) places[v] = GetPlace(flow, layout, blocks, static_cast<ValueId>(v));
  return places;
}

std::vector<Place> PlaceBlocks(const Areas& areas) {
  std::vector<Place> places;
  for (size_t offset : areas.arena.offsets) places.push_back({.where = Where::kArena, .offset = offset});
  for (const OffloadedBlock& o : areas.offloaded)
    places[o.block] = {.where = Where::kOffloaded, .offset = areas.offloads.offsets[o.block]};
  return places;
}

std::vector<Offload> ListOffloads(const ArenaLayout& layout, const Areas& areas) {
  std::vector<Offload> offloads;
  for (const OffloadedBlock& o : areas.offloaded) {
    const Block& block = layout.blocks[o.block];
    offloads.push_back({areas.offloads.offsets[o.block], block.bytes, block.first, o.store, o.load, block.last});
  }
  return offloads;
}

}  // namespace

MemoryPlan PlanMemory(const Graph& graph, const PlanOptions& options) {
  CHECK(options.workspace_bytes.empty() || options.workspace_bytes.size() == graph.nodes().size());
  const Dataflow flow = AnalyzeDataflow(graph, options.reuse);
  ArenaLayout layout = FindBestLayout(flow, options);
  const auto end = static_cast<int32_t>(layout.order.size());

  // The packing does not affect which copies are clobbered, because their sources are inputs.
  const size_t planned = layout.blocks.size();
  const auto copies = MakeFinalCopies(graph, GetPlaces(flow, layout, std::vector<Place>(planned)));
  const auto clobbered = FindClobbered(copies);
  for (size_t c : clobbered) {
    layout.blocks.push_back({.bytes = Aligned(copies[c].bytes, options.alignment), .first = end, .last = end});
  }
  const Areas areas = PackWithin(flow, layout, options.reuse ? options.offload : OffloadOptions());
  const std::vector<Place> blocks = PlaceBlocks(areas);
  const std::vector<Place> stages(blocks.begin() + static_cast<std::ptrdiff_t>(planned), blocks.end());

  MemoryPlan plan{.order = layout.order, .places = GetPlaces(flow, layout, blocks)};
  plan.workspace_offset.assign(graph.nodes().size(), 0);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (layout.workspace[n] >= 0) plan.workspace_offset[n] = blocks[layout.workspace[n]].offset;
  }
  plan.workspace_bytes = options.workspace_bytes;
  plan.copies = MakeFinalCopies(graph, plan.places);
  StageCopies(clobbered, stages, &plan.copies);
  plan.arena_bytes = areas.arena.total;
  plan.lower_bound = PeakLiveBytes(layout.blocks);
  plan.offloads = ListOffloads(layout, areas);
  plan.offload_area = areas.offloads.total;
  plan.offload_resident = areas.resident;
  return plan;
}

}  // namespace onnxtrain
