/* tests/fuzz_manifest.c - libFuzzer target: any text as a checkpoint's manifest, unchanged and with
 * a valid checksum. Corpus: tests/corpus/manifest. */
#include "base/digest.h"
#include "checkpoint/manifest.h"
#include "tests/fuzz.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An accepted manifest must describe a valid job, with its number of files, and members in
 * order. */
static void read_one(const uint8_t *data, size_t size, const char *tail)
{
    char path[64], why[MANIFEST_WHY_BYTES] = "";
    struct checkpoint_manifest *m = NULL;
    size_t n = strlen(tail);
    int fd = memfd_create("manifest", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    require(write(fd, tail, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (checkpoint_manifest_read(path, &m, why) == ST_OK) {
        require(m->step >= 0 && m->generation >= 1 && m->chunks->n_params >= 1);
        require(m->n_files >= 1 && m->job.n_workers >= 1 && optim_check(&m->job.optim) == ST_OK);
        require(!job_input_normal_problem(&m->job.normal));
        for (int i = 0; i < m->n_files; i++)
            require(m->files[i].bytes <= INT64_MAX);
        for (int i = 0; m->shard && i < m->chunks->n_chunks; i++)
            require(m->shard[i] >= 0 && m->shard[i] < m->n_files);
        const struct checkpoint_progress *p = &m->progress;
        require(!p->known || (p->n_members >= 1 && p->servers.n >= 1 && p->position <= INT64_MAX));
        for (int i = 0; p->known && i < p->n_members; i++)
            require(p->member[i] > (i ? p->member[i - 1] : -1));
        require(checkpoint_lineage_is_valid(&m->lineage, m->generation));
    } else {
        require(why[0] != 0);
    }
    checkpoint_manifest_free(m);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char tail[32];
    size_t n = size > 0 ? size - 1 : 0; /* without the last brace */
    snprintf(tail, sizeof tail, ",\"crc32c\":\"%08x\"}\n", digest_crc32c(0, data, n));
    read_one(data, size, "");
    read_one(data, n, tail);
    return 0;
}
