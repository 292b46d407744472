// Reads what TensorBoard reads: records of an event file, and the messages in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tools/scratch.h"

namespace onnxtrain {

// The fields of a protobuf message: by number, in order. Numbers are kept as 64 bits.
struct ProtoField {
  std::string bytes;    // of a length-delimited field
  uint64_t number = 0;  // of any other

  double AsDouble() const {
    double value = 0;
    std::memcpy(&value, &number, sizeof(value));
    return value;
  }
};
using ProtoFields = std::multimap<int, ProtoField>;

inline uint64_t TakeVarint(std::string_view* text) {
  uint64_t value = 0;
  for (int shift = 0; !text->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text->front());
    text->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) break;
  }
  return value;
}

inline uint64_t TakeFixed(std::string_view* text, size_t size) {
  uint64_t value = 0;
  EXPECT_GE(text->size(), size);
  std::memcpy(&value, text->data(), std::min(size, text->size()));
  text->remove_prefix(std::min(size, text->size()));
  return value;
}

inline ProtoFields Decode(std::string_view text) {
  ProtoFields fields;
  while (!text.empty()) {
    const uint64_t key = TakeVarint(&text);
    ProtoField field;
    switch (key & 7) {
      case 0:
        field.number = TakeVarint(&text);
        break;
      case 1:
        field.number = TakeFixed(&text, 8);
        break;
      case 5:
        field.number = TakeFixed(&text, 4);
        break;
      default: {
        EXPECT_EQ(key & 7, 2);
        const size_t size = std::min<size_t>(TakeVarint(&text), text.size());
        field.bytes = text.substr(0, size);
        text.remove_prefix(size);
      }
    }
    fields.emplace(static_cast<int>(key >> 3), std::move(field));
  }
  return fields;
}

inline const ProtoField& Only(const ProtoFields& fields, int number) {
  static const ProtoField kNone;
  EXPECT_EQ(fields.count(number), 1) << number;
  const auto found = fields.find(number);
  return found == fields.end() ? kNone : found->second;
}

inline std::vector<double> Doubles(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
  return values;
}

// A HistogramProto.
struct DecodedHistogram {
  double min, max, count, sum, sum_squares;
  std::vector<double> limits, counts;
};
inline DecodedHistogram DecodeHistogram(const std::string& proto) {
  const ProtoFields f = Decode(proto);
  const auto number = [&](int field) { return Only(f, field).AsDouble(); };
  return {number(1), number(2), number(3), number(4), number(5), Doubles(Only(f, 6).bytes), Doubles(Only(f, 7).bytes)};
}

// The events of the files in a folder.
inline std::vector<ProtoFields> ReadEvents(const std::string& folder) {
  std::vector<ProtoFields> events;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = ReadAll(entry.path());
    std::string_view text = file;
    while (text.size() > 12) {
      const size_t size = TakeFixed(&text, 8);
      text.remove_prefix(4);
      EXPECT_LE(size + 4, text.size());
      events.push_back(Decode(text.substr(0, size)));
      text.remove_prefix(std::min(size + 4, text.size()));
    }
  }
  return events;
}

}  // namespace onnxtrain
