// Objects that take part in the forks of their process.
#pragma once

namespace ucxstore::base {

// Forks of the process wait for one another, and for objects that are being enlisted or struck off.
class AroundForks {
  public:
    AroundForks(const AroundForks&) = delete;
    AroundForks& operator=(const AroundForks&) = delete;

  protected:
    AroundForks() = default;
    virtual ~AroundForks() = default;
    // To be called at the end of the most derived class's constructor, and at the beginning of its
    // destructor: from the one to the other it may be called.
    void enlist();
    void strike_off();
    // As enlist(), for what the others may use meanwhile: its turn comes after theirs before a
    // fork, and before theirs after it.
    void enlist_last();

  private:
    friend class ForksOfProcess;
    // On the thread that forks. None may throw. In the child there is no other thread: what one of
    // them was doing to this object is never finished.
    virtual void before_fork() noexcept = 0;
    virtual void in_parent() noexcept = 0;
    virtual void in_child() noexcept = 0;
};

// Calls all that are enlisted: on the thread that forks, before it does, and afterwards in the
// parent and in the child.
class ForksOfProcess {
  public:
    static void before();
    static void parent();
    static void child();
};

}  // namespace ucxstore::base
