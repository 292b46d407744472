#include "frontend/data/audio/audio_table.h"

#include "frontend/base/status.h"
#include "frontend/data/audio/sound_dataset.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

bool IsSoundPath(const std::string& path) { return IsSoundName(path) && IsRegularFile(path); }

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(PathTable table, OpenPathTable(path, open, column, options));
  return MakeSoundDataset({column.name, table.folder, std::move(table.paths)}, table.table, table.column, options);
}

}  // namespace onnxtrain
