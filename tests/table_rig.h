/* tests/table_rig.h - sgd, for tests of tables that do not depend on their optimizer. */
#ifndef TESTS_TABLE_RIG_H
#define TESTS_TABLE_RIG_H

#define TABLE_RIG_SGD                                                                              \
    {                                                                                              \
        .common = {.learning_rate = 0.01f, .epsilon = 1e-8f, .lr_decay = 0.1f }                    \
    }

#endif
