#include "backends/backend.h"
