// For main() alone: a library must leave its host's streams as they are.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace xqajit {

// Opens /dev/null on every closed descriptor of 0..2, so that no file which is opened later takes the number of a stream and
// receives what is printed. False if that fails; errno says why.
inline bool open_standard_streams() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (::open("/dev/null", O_RDWR) != fd) return false;  // the lowest free number, as all below are open
    }
    return true;
}

}  // namespace xqajit
