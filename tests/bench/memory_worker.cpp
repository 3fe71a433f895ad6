// The memory floor: how long one thread needs to read so many bytes once, and do nothing else.
//
//   memory_worker        then on stdin `read BYTES`, answered by {"seconds": time of one pass}

#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

namespace {

constexpr std::size_t kLanes = 64;  // enough independent sums to fill the widest registers

std::uint64_t sum(const std::uint64_t * words, std::size_t count) {
    std::uint64_t lanes[kLanes] = {};
    for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += words[i + lane];
    }
    std::uint64_t total = 0;
    for (std::uint64_t lane : lanes) total += lane;
    return total;
}

std::uint64_t * filled(std::size_t bytes) {
    void * memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    madvise(memory, bytes, MADV_HUGEPAGE);
    auto * words = static_cast<std::uint64_t *>(memory);
    for (std::size_t i = 0; i < bytes / sizeof(*words); ++i) words[i] = i;
    return words;
}

}  // namespace

int main() {
    std::uint64_t * words = nullptr;
    std::size_t have = 0;
    std::cout << "{\"ready\": true}" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream parts(line);
        std::string command;
        std::size_t bytes = 0;
        parts >> command >> bytes;
        if (command != "read") return 1;
        if (bytes != have) {
            if (words) munmap(words, have);
            words = filled(bytes);
            have = bytes;
        }
        if (!words) return 1;
        const auto start = std::chrono::steady_clock::now();
        const std::uint64_t total = sum(words, bytes / sizeof(*words));
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("{\"seconds\": %.9f, \"sum\": %llu}\n", seconds, static_cast<unsigned long long>(total));
        std::fflush(stdout);
    }
}
