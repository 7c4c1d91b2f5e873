// What clang's thread safety analysis is told (`make lint`): which lock guards what, and which
// functions need it. Other compilers see nothing of it.
#pragma once

#ifdef __clang__
#define THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define THREAD_ATTRIBUTE(x)
#endif

// Of classes: a lock, and what holds one for a scope.
#define CAPABILITY(name) THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY THREAD_ATTRIBUTE(scoped_lockable)
// Of members: which lock guards it, and which locks are never taken before this one.
#define GUARDED_BY(lock) THREAD_ATTRIBUTE(guarded_by(lock))
#define ACQUIRED_BEFORE(...) THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
// Of functions: the caller has the lock; or it is taken, or let go of, here.
#define REQUIRES(...) THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
// Not looked at: the comment beside it says why.
#define UNCHECKED_LOCKS THREAD_ATTRIBUTE(no_thread_safety_analysis)
