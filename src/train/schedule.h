/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COI_TRAIN_SCHEDULE_H
#define COI_TRAIN_SCHEDULE_H

#include <cohort/schedule.h>

#include "value/value.h"

extern const coi_class coi_schedule_class;
/* Its rate after `step` updates, from 0 on. */
double coi_schedule_rate(const co_schedule *schedule, int64_t step);

#endif
