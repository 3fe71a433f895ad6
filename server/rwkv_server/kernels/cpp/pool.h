// Threads that share the tasks of one phase after another.
//
// A phase is a number of tasks; whoever is free takes the next one. A thread that the system has
// put aside before it took a task is not waited for. Waiting is a short spin and then sleep: with
// fewer free cores than threads, endless spinning would take the time of those that have work.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace rwkv {

class Pool {
 public:
  explicit Pool(int threads) : helpers_(threads - 1) {
    handles_ = new pthread_t[helpers_ > 0 ? helpers_ : 1];
    for (int i = 0; i < helpers_; i++) {
      if (pthread_create(&handles_[i], nullptr, start, new Start{this, i + 1})) helpers_ = i;
    }
  }
  ~Pool() {
    stop_.store(true);
    wake();
    for (int i = 0; i < helpers_; i++) pthread_join(handles_[i], nullptr);
    delete[] handles_;
  }
  Pool(const Pool&) = delete;

  int threads() const { return helpers_ + 1; }

  // Call task(index, thread) for every index below count; back when all are done.
  template <class Task>
  void run(int64_t count, const Task& task) {
    if (helpers_ == 0 || count == 1) {
      for (int64_t i = 0; i < count; i++) task(i, 0);
      return;
    }
    if (count == 0) return;
    context_ = &task;
    call_ = [](const void* context, int64_t index, int thread) {
      (*static_cast<const Task*>(context))(index, thread);
    };
    done_.store(0, std::memory_order_relaxed);
    generation_ = (generation_ + 1) & 0xFFFF;
    // Generation, number of tasks and the next one in one word: they can't be seen apart.
    ticket_.store(generation_ << 48 | uint64_t(count) << 24, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst)) wake();
    take_tasks(0);
    for (int spins = 0; done_.load(std::memory_order_acquire) < count; spins++) {
      if (spins < kSpins) pause(); else sched_yield();
    }
  }

 private:
  static constexpr int kSpins = 4000;
  struct Start {
    Pool* pool;
    int thread;
  };

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
  }
  static bool open(uint64_t ticket) {
    return (ticket & 0xFFFFFF) < (ticket >> 24 & 0xFFFFFF);
  }
  static void* start(void* argument) {
    const Start* given = static_cast<Start*>(argument);
    const Start here = *given;
    delete given;
    here.pool->serve(here.thread);
    return nullptr;
  }

  void take_tasks(int thread) {
    while (open(ticket_.load(std::memory_order_acquire))) {
      const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
      if (!open(ticket)) break;
      call_(context_, ticket & 0xFFFFFF, thread);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void serve(int thread) {
    for (;;) {
      int spins = 0;
      while (!open(ticket_.load(std::memory_order_acquire))) {
        if (stop_.load()) return;
        if (++spins < kSpins) {
          pause();
        } else {
          sleep();
          spins = 0;
        }
      }
      take_tasks(thread);
    }
  }

  void sleep() {
    const uint32_t seen = wakes_.load(std::memory_order_seq_cst);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (!open(ticket_.load(std::memory_order_seq_cst)) && !stop_.load()) {
      syscall(SYS_futex, &wakes_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  void wake() {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &wakes_, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
  }

  int helpers_;
  pthread_t* handles_;
  uint64_t generation_ = 0;
  const void* context_ = nullptr;
  void (*call_)(const void*, int64_t, int) = nullptr;
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> wakes_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace rwkv
