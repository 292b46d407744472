// Names of classes that a file spells differently from the training data: "<=50K." for "<=50K", "Spam" for "spam".
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace onnxtrain {

class ClassSpellings {
 public:
  explicit ClassSpellings(std::vector<std::string> classes);

  // Returns the class that `name` differs from in case, in blanks or quotes around it, or in full stops at its end
  // alone. "" where no class, or more than one, is such.
  std::string Find(std::string_view name) const;

  // Returns the end of a message about a name that is no class: "; did you mean 'dog'?", or "" where none is near.
  std::string Suggest(std::string_view name) const;

 private:
  std::vector<std::string> classes_;
  std::unordered_map<std::string, std::string> by_form_;  // "" where several classes have one form
};

// Returns two of the names that differ as ClassSpellings::Find allows; empty where no two do.
std::pair<std::string, std::string> FindTwoSpellings(const std::vector<std::string>& names);

}  // namespace onnxtrain
