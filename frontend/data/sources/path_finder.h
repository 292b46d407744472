// Finds the files that the fields of a table name, as people name them: by their path from the folder of the table, by
// that from a folder beside the table, or by either without the ending.
#pragma once

#include <string>
#include <vector>

namespace onnxtrain {

class PathFinder {
 public:
  // `is_wanted`: is it a file of the wanted kind?
  PathFinder(std::string folder, bool (*is_wanted)(const std::string& path));

  // Returns the path of the file relative to the folder; "" if there is none.
  std::string Find(const std::string& field);
  // Do all of these fields name files, and each of them another one?
  bool FindsAll(const std::vector<std::string>& fields);

 private:
  // What is put before and behind a field.
  struct Pattern {
    std::string prefix, suffix;
  };

  std::string folder_;
  bool (*is_wanted_)(const std::string& path);
  bool has_served_ = false;
  std::vector<Pattern> patterns_;  // the one that served last is the first, whose files are not looked into any more
};

}  // namespace onnxtrain
