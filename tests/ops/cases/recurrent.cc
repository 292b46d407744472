#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Row {
  std::string suffix;
  int64_t steps, batch, units;
  bool reverse, lengths;
};

const Row kRows[] = {
    {"", 4, 3, 5, false, false},
    {"_reverse", 4, 3, 5, true, false},
    {"_lengths", 5, 3, 4, false, true},
    {"_reverse_lengths", 5, 3, 4, true, true},
    {"_one_step", 1, 2, 3, false, false},
    {"_one_of_each", 3, 1, 1, false, false},
    {"_wide", 3, 9, 40, true, false},
    {"_many", 2, 32, 3, false, false},
    {"_many_lengths", 3, 32, 2, true, true},
};

Attrs Of(const Row& row) { return {{"reverse", int64_t{row.reverse}}}; }

Input Lengths(const Row& row) { return row.lengths ? Ints({row.batch}, 0, row.steps) : Absent(); }

Input Halved(Shape shape) { return Uniform(std::move(shape), -0.5, 0.5); }

void AddLstm(const Row& row, std::vector<Case>* cases) {
  const Shape state = {row.batch, row.units}, all = {row.steps, row.batch, row.units};
  const Shape gates = {row.steps, row.batch, 4 * row.units}, r = {4 * row.units, row.units};
  cases->push_back({"Lstm" + row.suffix,
                    "Lstm",
                    {Normal(gates), Halved(r), Normal(state), Normal(state), Lengths(row)},
                    Of(row),
                    {0, 1}});
  cases->push_back({"LstmGrad" + row.suffix,
                    "LstmGrad",
                    {Normal(all), Halved(r), Normal(state), Normal(all), Uniform(gates, 0.1, 0.9), Lengths(row)},
                    Of(row),
                    {0, 1, 2}});
  cases->push_back(
      {"LstmGrad_cells" + row.suffix,
       "LstmGrad",
       {Normal(all), Halved(r), Normal(state), Normal(all), Uniform(gates, 0.1, 0.9), Lengths(row), Normal(all)},
       Of(row),
       {0, 1, 2}});
}

void AddGru(const Row& row, std::vector<Case>* cases) {
  const Shape state = {row.batch, row.units}, all = {row.steps, row.batch, row.units}, r = {3 * row.units, row.units};
  const Shape x = {row.steps, row.batch, 3 * row.units}, gates = {row.steps, row.batch, 4 * row.units};
  cases->push_back({"Gru" + row.suffix,
                    "Gru",
                    {Normal(x), Halved(r), Normal({3 * row.units}), Normal(state), Lengths(row)},
                    Of(row)});
  cases->push_back({"GruGrad" + row.suffix,
                    "GruGrad",
                    {Normal(all), Halved(r), Normal(state), Normal(all), Uniform(gates, 0.1, 0.9), Lengths(row)},
                    Of(row),
                    {0, 1, 2}});
}

void AddRnn(const Row& row, const std::string& activation, std::vector<Case>* cases) {
  const Shape state = {row.batch, row.units}, all = {row.steps, row.batch, row.units}, r = {row.units, row.units};
  Attrs attrs = Of(row);
  attrs.Set("activation", activation);
  const std::string suffix = StrCat("_", activation, row.suffix);
  cases->push_back({"Rnn" + suffix, "Rnn", {WellSeparated(all), Halved(r), Normal(state), Lengths(row)}, attrs});
  cases->push_back(
      {"RnnGrad" + suffix, "RnnGrad", {Normal(all), Halved(r), Uniform(all, 0.1, 0.9), Lengths(row)}, attrs, {0, 1}});
}

}  // namespace

std::vector<Case> RecurrentCases() {
  std::vector<Case> cases;
  for (const Row& row : kRows) {
    AddLstm(row, &cases);
    AddGru(row, &cases);
    for (const char* activation : {"Tanh", "Relu"}) AddRnn(row, activation, &cases);
  }
  return cases;
}

}  // namespace onnxtrain::cases
