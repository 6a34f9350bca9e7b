/* tests/sim/scene.h - scenes: faults that matter only together, and that independent draws would
 * rarely combine.
 * Owns: nothing. Threads: values. Errors: none. */
#ifndef TESTS_SIM_SCENE_H
#define TESTS_SIM_SCENE_H
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"

/* Adds, with some probability, faults without which the schedule's last fault has no effect. */
void sim_scene_draw_beside(struct sim_random *r, struct sim_schedule *s);

/* Adds a scene, in every fourth schedule. */
void sim_scene_draw(struct sim_random *r, struct sim_schedule *s);

/* Replaces all faults: a worker ends with an error near a checkpoint, whose order reaches a server
 * late, so that the server saves the version before its present one. Then a server dies, so that
 * the checkpoint is read. */
void sim_scene_late_order(struct sim_random *r, struct sim_schedule *s);

/* Replaces all faults: a server joins, and dies before ps 0 learns that it has begun the plan,
 * while the members already train. So ps 0 makes a second plan from the generation before. */
void sim_scene_unsettled(struct sim_random *r, struct sim_schedule *s);

/* Replaces all faults: a generation ends while one server has made a step that the other has not,
 * and still writes the checkpoint of that step. */
void sim_scene_uneven_stop(struct sim_random *r, struct sim_schedule *s);

#endif
