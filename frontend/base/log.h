// The only header that includes glog. Never include it together with torch headers: both define CHECK and LOG.
#pragma once

#include <glog/logging.h>
