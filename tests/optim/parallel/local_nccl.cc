#include "tests/optim/parallel/local_nccl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace onnxtrain {
namespace {

using aten::Nccl;

struct Group {
  explicit Group(int size) : met(size), from(size) {}
  std::barrier<> met;
  std::vector<const std::byte*> from;  // by rank: what it offers the others
};

struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;
  // Of a group of calls, by the other rank.
  std::map<int, std::pair<const std::byte*, size_t>> sent;
  std::map<int, std::byte*> received;
};

Member& Get(Nccl::Communicator communicator) { return *static_cast<Member*>(communicator); }

thread_local Member* in_group_of_calls = nullptr;

size_t ElementBytes(int type) {
  return type == Nccl::kUint8 || type == Nccl::kInt8 ? 1 : type == Nccl::kFloat32 ? sizeof(float) : sizeof(double);
}

// Calls `read` while the memory of all ranks stays as it is.
template <typename Read>
int ShareWithAll(Member& member, const void* offered, const Read& read) {
  Group& group = *member.group;
  group.from[member.rank] = static_cast<const std::byte*>(offered);
  group.met.arrive_and_wait();
  read(group.from);
  group.met.arrive_and_wait();
  return Nccl::kSuccess;
}

template <typename T>
std::vector<T> Reduce(const std::vector<const std::byte*>& from, size_t count, int operation) {
  std::vector<T> result(count);
  for (size_t r = 0; r < from.size(); ++r) {
    const T* const values = reinterpret_cast<const T*>(from[r]);
    for (size_t i = 0; i < count; ++i) {
      T& to = result[i];
      const T value = values[i];
      to = r == 0                    ? value
           : operation == Nccl::kSum ? to + value
           : operation == Nccl::kMax ? std::max(to, value)
                                     : std::min(to, value);
    }
  }
  return result;
}

template <typename T>
int AllReduceAs(const void* from, void* to, size_t count, int operation, Member& member) {
  std::vector<T> result;
  ShareWithAll(member, from, [&](const auto& all) { result = Reduce<T>(all, count, operation); });
  std::ranges::copy(result, static_cast<T*>(to));
  return Nccl::kSuccess;
}

int AllReduce(const void* from, void* to, size_t count, int type, int operation, Nccl::Communicator communicator,
              Nccl::Stream) {
  Member& member = Get(communicator);
  if (type == Nccl::kFloat32) return AllReduceAs<float>(from, to, count, operation, member);
  if (type == Nccl::kFloat64) return AllReduceAs<double>(from, to, count, operation, member);
  return AllReduceAs<int64_t>(from, to, count, operation, member);
}

int Broadcast(const void* from, void* to, size_t count, int type, int root, Nccl::Communicator communicator,
              Nccl::Stream) {
  return ShareWithAll(Get(communicator), from,
                      [&](const auto& all) { std::memmove(to, all[root], count * ElementBytes(type)); });
}

int AllGather(const void* from, void* to, size_t count, int type, Nccl::Communicator communicator, Nccl::Stream) {
  const size_t bytes = count * ElementBytes(type);
  return ShareWithAll(Get(communicator), from, [&](const auto& all) {
    for (size_t r = 0; r < all.size(); ++r) std::memmove(static_cast<std::byte*>(to) + r * bytes, all[r], bytes);
  });
}

int Send(const void* from, size_t count, int type, int to, Nccl::Communicator communicator, Nccl::Stream) {
  in_group_of_calls = &Get(communicator);
  in_group_of_calls->sent[to] = {static_cast<const std::byte*>(from), count * ElementBytes(type)};
  return Nccl::kSuccess;
}

int Receive(void* to, size_t, int, int from, Nccl::Communicator communicator, Nccl::Stream) {
  in_group_of_calls = &Get(communicator);
  in_group_of_calls->received[from] = static_cast<std::byte*>(to);
  return Nccl::kSuccess;
}

// Every rank offers the list of what it sends.
int EndGroupOfCalls() {
  Member& member = *in_group_of_calls;
  ShareWithAll(member, &member.sent, [&](const auto& all) {
    for (const auto& [from, to] : member.received) {
      const auto& sent = *reinterpret_cast<const decltype(member.sent)*>(all[from]);
      const auto& [bytes, size] = sent.at(member.rank);
      std::memcpy(to, bytes, size);
    }
  });
  member.sent.clear();
  member.received.clear();
  return Nccl::kSuccess;
}

int MakeUniqueId(Nccl::UniqueId* id) {
  static std::atomic<int64_t> next = 1;
  const int64_t number = next++;
  std::memcpy(id->bytes.data(), &number, sizeof(number));
  return Nccl::kSuccess;
}

int InitRank(Nccl::Communicator* communicator, int size, Nccl::UniqueId id, int rank) {
  static std::mutex mutex;
  static std::map<std::array<char, 128>, std::weak_ptr<Group>> groups;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Group> group = groups[id.bytes].lock();
  if (group == nullptr) groups[id.bytes] = group = std::make_shared<Group>(size);
  *communicator = new Member{group, rank, {}, {}};
  return Nccl::kSuccess;
}

int Abort(Nccl::Communicator communicator) {
  delete &Get(communicator);
  return Nccl::kSuccess;
}

}  // namespace

aten::Nccl LocalNccl() {
  return {.describe = [](int result) { return result == Nccl::kSuccess ? "no error" : "remote process exited"; },
          .get_unique_id = MakeUniqueId,
          .init_rank = InitRank,
          .abort = Abort,
          .get_async_error =
              [](Nccl::Communicator, Nccl::Result* error) {
                *error = Nccl::kSuccess;
                return Nccl::kSuccess;
              },
          .all_reduce = AllReduce,
          .broadcast = Broadcast,
          .all_gather = AllGather,
          .send = Send,
          .receive = Receive,
          .group_start = [] { return Nccl::kSuccess; },
          .group_end = EndGroupOfCalls};
}

}  // namespace onnxtrain
