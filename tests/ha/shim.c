/* A disk that forgets and a disk that fails, for the process into which this is preloaded (ha.md 12.4).
 *
 * SHIM_ROOT    directory that is watched (a store)
 * SHIM_SHADOW  what a loss of power would surely leave of it: file contents as of their last sync, names as of the
 *              last sync of their directory. Renames and removals before that wait in SHIM_SHADOW.pending.
 * SHIM_KILL_AT the process is killed when it has come to so many moments: before and after each call that is watched
 * SHIM_EIO     file; when it is there, the next sync of a path that contains its text fails with EIO, once.
 *
 * Contents are copied before the real sync: what is written while it runs is not promised by it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define STEP (64 * 1024)
#define PENDING_MAX 4096
#define LONG_PATH (PATH_MAX + 64)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], shadow[PATH_MAX], trigger[PATH_MAX];
static char *pending[PENDING_MAX]; /* "R\told\tnew", "L\told\tnew" (a hard link) or "U\tpath"; small: not done yet */
static int pending_count;
static int moments_left; /* 0: for ever */

static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_syncfs)(int);
static int (*real_msync)(void *, size_t, int);
static int (*real_rename)(const char *, const char *), (*real_unlink)(const char *);
static int (*real_link)(const char *, const char *), (*real_unlinkat)(int, const char *, int);

/* What a process was doing when it was killed: did it get there? */
static int was_done(const char *line) {
    char names[2 * LONG_PATH];
    snprintf(names, sizeof names, "%s", line + 2);
    char *second = strchr(names, '\t');
    if (second) *second++ = 0;
    return *line == 'l' ? second && access(second, F_OK) == 0 : access(names, F_OK) != 0;
}

static void load_pending(void) {
    char path[LONG_PATH], line[2 * LONG_PATH];
    snprintf(path, sizeof path, "%s.pending", shadow);
    FILE *file = fopen(path, "r");
    while (file && pending_count < PENDING_MAX && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line >= 'a' && !was_done(line)) continue;
        if (*line >= 'a') *line -= 'a' - 'A';
        pending[pending_count++] = strdup(line);
    }
    if (file) fclose(file);
}

__attribute__((constructor)) static void begin(void) {
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_syncfs = dlsym(RTLD_NEXT, "syncfs");
    real_msync = dlsym(RTLD_NEXT, "msync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_link = dlsym(RTLD_NEXT, "link");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    if (getenv("SHIM_ROOT")) snprintf(root, sizeof root, "%s", getenv("SHIM_ROOT"));
    if (getenv("SHIM_SHADOW")) snprintf(shadow, sizeof shadow, "%s", getenv("SHIM_SHADOW"));
    if (getenv("SHIM_KILL_AT")) moments_left = atoi(getenv("SHIM_KILL_AT"));
    if (getenv("SHIM_EIO")) snprintf(trigger, sizeof trigger, "%s", getenv("SHIM_EIO"));
    if (*shadow) load_pending();
}

static void moment(void) {
    if (moments_left && __sync_sub_and_fetch(&moments_left, 1) == 0) kill(getpid(), SIGKILL);
}

static int watched(const char *path) {
    size_t size = strlen(root);
    return size && strncmp(path, root, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static void shadow_of(const char *path, char *out) { snprintf(out, LONG_PATH, "%s%s", shadow, path + strlen(root)); }

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return watched(path);
}

static void absolute(int directory, const char *name, char *path) {
    char base[PATH_MAX];
    if (*name == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) base[0] = 0;
        snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX / 2, base, name);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, base, sizeof base - 1);
        base[size < 0 ? 0 : size] = 0;
        snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX / 2, base, name);
    }
}

static void make_parents(char *path) {
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
}

static void die(const char *what) {
    fprintf(stderr, "shim: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static void name_is_safe(const char *path);

/* The shadow of a file becomes like the file from one place to another; pages that are equal are not written. */
static void copy_part(const char *path, off_t at, off_t end) {
    char target[LONG_PATH];
    static char ours[STEP], theirs[STEP];
    struct stat status;
    name_is_safe(path);
    shadow_of(path, target);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) return; /* removed meanwhile */
    make_parents(target);
    int to = open(target, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (to < 0 || fstat(from, &status) || ftruncate(to, status.st_size)) die(target);
    if (end > status.st_size) end = status.st_size;
    while (at < end) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 || data > end) data = end;
        data -= data < end ? data % PAGE : 0;
        if (data > at && fallocate(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, data - at)) die("punch");
        at = data;
        if (at >= end) break;
        off_t hole = lseek(from, at, SEEK_HOLE);
        if (hole <= at) hole = at + PAGE; /* it changed meanwhile: go on page by page */
        if (hole > end) hole = end;
        while (at < hole) {
            ssize_t want = hole - at < STEP ? hole - at : STEP, got = pread(from, ours, want, at);
            if (got <= 0) die(path);
            ssize_t had = pread(to, theirs, got, at);
            for (ssize_t page = 0; page < got; page += PAGE) {
                ssize_t size = got - page < PAGE ? got - page : PAGE;
                if (had < page + size || memcmp(ours + page, theirs + page, size))
                    if (pwrite(to, ours + page, size, at + page) != size) die(target);
            }
            at += got;
        }
    }
    close(from);
    close(to);
}

static void copy_file(const char *path) { copy_part(path, 0, LLONG_MAX); }

/* The process may be killed at any moment, here too. */
static void save_pending(void) {
    char path[LONG_PATH], next[LONG_PATH];
    snprintf(path, sizeof path, "%s.pending", shadow);
    snprintf(next, sizeof next, "%s.pending.next", shadow);
    FILE *file = fopen(next, "w");
    if (!file) die(next);
    for (int i = 0; i < pending_count; i++) fprintf(file, "%s\n", pending[i]);
    if (fclose(file) || real_rename(next, path)) die(next);
}

static void apply(char *what);

/* The journal of a file system is not endless: when it is full, the oldest half of it goes to the disk. */
static void make_room(void) {
    int moved = PENDING_MAX / 2;
    for (int i = 0; i < moved; i++) {
        apply(pending[i]);
        free(pending[i]);
    }
    pending_count -= moved;
    memmove(pending, pending + moved, pending_count * sizeof *pending);
}

static void note(char *what) {
    if (pending_count == PENDING_MAX) make_room();
    pending[pending_count++] = strdup(what);
    save_pending();
}

static void last_is_done(int done) {
    if (done)
        pending[pending_count - 1][0] -= 'a' - 'A';
    else
        free(pending[--pending_count]);
    save_pending();
}

static void apply(char *what) {
    char from[LONG_PATH], to[LONG_PATH], copy[2 * LONG_PATH];
    snprintf(copy, sizeof copy, "%s", what);
    strtok(copy, "\t");
    shadow_of(strtok(NULL, "\t"), from);
    if (*what == 'U') {
        real_unlink(from);
        return;
    }
    shadow_of(strtok(NULL, "\t"), to);
    make_parents(to);
    if (*what == 'R') {
        real_rename(from, to);
    } else {
        /* Two names of one file in the shadow too; whoever syncs one of them again has written a new file. */
        real_unlink(to);
        real_link(from, to);
    }
}

static int is_in(const char *path, const char *directory) {
    const char *slash = strrchr(path, '/');
    size_t size = strlen(directory);
    return (size_t)(slash - path) == size && strncmp(path, directory, size) == 0;
}

static int concerns_directory(char *first, char *second, const char *directory) {
    return is_in(first, directory) || (second && is_in(second, directory));
}

static int concerns_path(char *first, char *second, const char *path) {
    return strcmp(first, path) == 0 || (second && strcmp(second, path) == 0);
}

/* Renames, links and removals that concern something count now. NULL: all of them. */
static void settle(int (*concerns)(char *, char *, const char *), const char *what) {
    int kept = 0;
    for (int i = 0; i < pending_count; i++) {
        char copy[2 * LONG_PATH];
        snprintf(copy, sizeof copy, "%s", pending[i] + 2);
        char *second = strchr(copy, '\t');
        if (second) *second++ = 0;
        if (!concerns || concerns(copy, second, what)) {
            apply(pending[i]);
            free(pending[i]);
        } else {
            pending[kept++] = pending[i];
        }
    }
    if (kept != pending_count) {
        pending_count = kept;
        save_pending();
    }
}

/* A directory was synced. A rename between two directories is one step: the sync of either makes it last. */
static void names_are_safe(const char *directory) { settle(directory ? concerns_directory : NULL, directory); }

/* A file is being synced by this name: it is not the one that was renamed or removed here before. */
static void name_is_safe(const char *path) { settle(concerns_path, path); }

/* New names in a synced directory are safe; what stands in the files is not. */
static void files_are_there(const char *directory) {
    char path[LONG_PATH], target[LONG_PATH];
    struct stat status;
    DIR *open_directory = opendir(directory);
    struct dirent *entry;
    while (open_directory && (entry = readdir(open_directory))) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        shadow_of(path, target);
        if (lstat(path, &status) || !S_ISREG(status.st_mode) || access(target, F_OK) == 0) continue;
        make_parents(target);
        int file = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0) die(target);
        close(file);
    }
    if (open_directory) closedir(open_directory);
}

static int visit(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)where;
    if (kind == FTW_F && S_ISREG(status->st_mode)) copy_file(path);
    return 0;
}

/* 1 if this sync shall fail. */
static int fails(const char *path) {
    char wanted[256] = "";
    if (!*trigger || access(trigger, F_OK)) return 0;
    FILE *file = fopen(trigger, "r");
    if (!file) return 0;
    if (!fgets(wanted, sizeof wanted, file)) wanted[0] = 0;
    fclose(file);
    wanted[strcspn(wanted, "\n")] = 0;
    return strstr(path, wanted) && real_unlink(trigger) == 0;
}

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    struct stat status;
    if (!path_of(fd, path)) return real(fd);
    moment();
    pthread_mutex_lock(&lock);
    int broken = fails(path);
    if (!broken && *shadow && fstat(fd, &status) == 0) {
        if (S_ISDIR(status.st_mode)) {
            names_are_safe(path);
            files_are_there(path);
        } else {
            copy_file(path);
        }
    }
    pthread_mutex_unlock(&lock);
    if (broken) {
        errno = EIO;
        return -1;
    }
    int result = real(fd);
    moment();
    return result;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

/* Which watched file is mapped there, and where in it that is. */
static int mapped_file(size_t address, char *path, off_t *offset) {
    char line[PATH_MAX + 256];
    size_t first, end, begin;
    int found = 0, at;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%zx-%zx %*s %zx %*s %*s %n", &first, &end, &begin, &at) < 3) continue;
        if (address < first || address >= end) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(path, PATH_MAX, "%s", line + at);
        *offset = begin + (address - first);
        found = 1;
    }
    if (maps) fclose(maps);
    return found && watched(path);
}

int msync(void *address, size_t size, int flags) {
    char path[PATH_MAX];
    off_t at;
    if (!mapped_file((size_t)address, path, &at)) return real_msync(address, size, flags);
    pthread_mutex_lock(&lock);
    int broken = fails(path);
    if (!broken && *shadow) copy_part(path, at, at + (off_t)size);
    pthread_mutex_unlock(&lock);
    if (broken) {
        errno = EIO;
        return -1;
    }
    return real_msync(address, size, flags);
}

int syncfs(int fd) {
    if (*shadow) {
        pthread_mutex_lock(&lock);
        nftw(root, visit, 16, FTW_PHYS);
        names_are_safe(NULL);
        pthread_mutex_unlock(&lock);
    }
    return real_syncfs(fd);
}

/* Noted before it is done, in small letters, and again when it is: whoever is killed in between leaves a trace. */
static int two_names(int (*real)(const char *, const char *), char kind, const char *old, const char *new) {
    char from[PATH_MAX], to[PATH_MAX], line[2 * LONG_PATH];
    absolute(AT_FDCWD, old, from);
    absolute(AT_FDCWD, new, to);
    if (!*shadow || !watched(to)) return real(old, new);
    moment();
    pthread_mutex_lock(&lock);
    snprintf(line, sizeof line, "%c\t%s\t%s", kind, from, to);
    note(line);
    moment();
    int result = real(old, new), error = errno;
    moment();
    last_is_done(result == 0);
    pthread_mutex_unlock(&lock);
    moment();
    errno = error;
    return result;
}

int rename(const char *old, const char *new) { return two_names(real_rename, 'r', old, new); }
int link(const char *old, const char *new) { return two_names(real_link, 'l', old, new); }

static int removed(int directory, const char *name, int flags) {
    char path[PATH_MAX], line[2 * LONG_PATH];
    absolute(directory, name, path);
    if (!*shadow || !watched(path) || flags & AT_REMOVEDIR) return real_unlinkat(directory, name, flags);
    moment();
    pthread_mutex_lock(&lock);
    snprintf(line, sizeof line, "u\t%s", path);
    note(line);
    int result = real_unlinkat(directory, name, flags), error = errno;
    last_is_done(result == 0);
    pthread_mutex_unlock(&lock);
    moment();
    errno = error;
    return result;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int directory, const char *name, int flags) { return removed(directory, name, flags); }
