#include "frontend/base/status.h"
