/* Shared parameters: two trainers push differences of two rows to one server, which may lose
 * what it had not synced.
 *
 * One process; each step of the world is one d_step. A push may arrive again at any later time,
 * an answer may be lost or late. README.md says what is left out and what the variants are.
 *
 * Each update adds a power of four of its own to a row, so a sum tells which updates are in it,
 * and how often. */

#ifndef RESTARTS
#define RESTARTS 2 /* of the server */
#endif
#ifndef PUSHES
#define PUSHES 4   /* of a trainer */
#endif

/* Trainer 0 makes updates 0 and 1 in pass 0 and update 2 in pass 1; trainer 1 makes 0 and 1 in
 * pass 0. Update 1 is of row 1, the others of row 0. */
#define ROW(u) ((u) == 1)
#define ADDEND(t, u) ((u) == 2 -> 4 : ((t) == 0 -> 1 : ((u) == 0 -> 16 : 4)))
#define SUM_OF_PASS_0(r) (r == 0 -> 17 : 5)
#define SUM_OF_RUN(r) (r == 0 -> 21 : 5)
#define SOMETHING_TWICE(sum) ((sum) & 170)
#define MADE_ALL(t) (made[t] == (t == 0 -> 3 : 2))
#define MADE_BUCKET(t) (made[t] >= 2)

/* The server: in memory, and synced. Every row has a version of its own from the start. */
#ifdef TIED_VERSIONS
byte version[2], synced_version[2], counter, synced_counter;
#else
byte version[2], synced_version[2], counter = 2, synced_counter = 2;
#endif
byte value[2], synced_value[2];
byte applied[2], synced_applied[2]; /* number of the last push, by trainer */
byte life = 1;                      /* incarnation */
bit pass;                           /* the one before was cut */

/* The trainers: [2 * trainer + row]. */
byte made[2];                       /* updates */
byte table[4];                      /* L */
byte known[4];                      /* S */
byte at_push[4];                    /* L0 */
byte number[2];                     /* of the last push */
byte waiting[2];
bit asked_in[2];                    /* pass */
bool flushed[2];                    /* the flush at the end of its bucket of pass 0 is answered */
byte cursor_life[2], cursor[2];
#define ASKING 1                    /* an empty push */
#define PUSHING 2
#define FLUSHING 3                  /* synced */

/* The network: every push ever sent, [DELTA(trainer, number, row)], and the last answers. */
byte delta[4 * PUSHES];
#define DELTA(t, n, r) ((PUSHES * (t) + (n) - 1) * 2 + (r))
bool answered[2];
bit answer_has[4];
byte answer_value[4];
byte answer_life[2], answer_cursor[2], answer_counter[2];

byte restarts;
byte lost[2];                       /* updates that the server had, and lost, and still lacks */
#ifdef REACH_REPEAT
bool repeated;                      /* a push met its own effect */
#endif

hidden byte r, v, t_, n_;

#define QUIET(t) \
  (!waiting[t] && table[2 * t] == known[2 * t] && table[2 * t + 1] == known[2 * t + 1])
#ifdef CURSOR_WITHOUT_INCARNATION
#define FOREIGN(t) false
#define BEHIND(t) (cursor[t] < counter)
#else
#define FOREIGN(t) (cursor_life[t] != life)
#define BEHIND(t) (FOREIGN(t) || cursor[t] < counter)
#endif
#define NEWER(t, r) (FOREIGN(t) || version[r] > cursor[t])
#define AT_REST(t) (QUIET(t) && !BEHIND(t) && MADE_ALL(t))
#define FINISHED (pass == 1 && AT_REST(0) && AT_REST(1))

/* Ends every step: forgets what has no effect any more, then I9. */
inline settle() {
  d_step {
    for (t_ : 0 .. 1) {
      for (n_ : 1 .. PUSHES) {
        if
        :: n_ <= synced_applied[t_] -> delta[DELTA(t_, n_, 0)] = 0; delta[DELTA(t_, n_, 1)] = 0
        :: else
        fi
      }
      if
      :: FOREIGN(t_) -> cursor_life[t_] = 0; cursor[t_] = 0
      :: else
      fi;
#ifndef CURSOR_WITHOUT_INCARNATION
      if
      :: answer_life[t_] != life ->
           answer_life[t_] = 0; answer_cursor[t_] = 0; answer_counter[t_] = 0
      :: else
      fi;
#endif
      if
      :: !waiting[t_] ->
           asked_in[t_] = 0; answered[t_] = false;
           answer_life[t_] = 0; answer_cursor[t_] = 0; answer_counter[t_] = 0;
           for (r : 0 .. 1) {
             at_push[2 * t_ + r] = 0; answer_has[2 * t_ + r] = 0; answer_value[2 * t_ + r] = 0
           }
      :: else
      fi
    }
    for (r : 0 .. 1) {
      lost[r] = lost[r] & (255 - value[r]);
      assert(!SOMETHING_TWICE(value[r]));
      /* At rest all agree, and only what the server lost in an unsynced tail may be missing. */
      assert(!FINISHED || value[r] == table[r] && value[r] == table[2 + r]);
      assert(!FINISHED || (value[r] | lost[r]) == SUM_OF_RUN(r))
    }
#ifdef REACH_PASS
    assert(!FINISHED);
#endif
#ifdef REACH_LOSS
    assert(!FINISHED || value[0] == SUM_OF_RUN(0));
#endif
#ifdef REACH_REPEAT
    assert(!FINISHED || !repeated);
#endif
    skip
  }
}

/* A worker thread writes to the live table, also while a push is on its way. */
inline update(t) {
  d_step {
    pass == 0 && made[t] < 2 || pass == 1 && t == 0 && made[0] == 2 ->
    table[2 * t + ROW(made[t])] = table[2 * t + ROW(made[t])] + ADDEND(t, made[t]);
    made[t]++
  }
}

/* A round begins: L0 is read once, d = L0 - S. One push in flight. */
inline begin_push(t) {
  number[t]++;
  assert(number[t] <= PUSHES);
  for (r : 0 .. 1) {
    at_push[2 * t + r] = table[2 * t + r];
    delta[DELTA(t, number[t], r)] = table[2 * t + r] - known[2 * t + r]
  }
  asked_in[t] = pass;
  answered[t] = false
}

inline push(t) {
  d_step {
    !waiting[t] && !QUIET(t) ->
    begin_push(t);
    waiting[t] = PUSHING
  }
}

/* At the end of a bucket, before its versions are stored and released. */
inline flush(t) {
  d_step {
    !waiting[t] && MADE_BUCKET(t) && !flushed[t] && pass == 0 ->
    begin_push(t);
    waiting[t] = FLUSHING
  }
}

inline ask(t) {
  d_step {
    !waiting[t] && QUIET(t) && BEHIND(t) && flushed[t] ->
    for (r : 0 .. 1) { at_push[2 * t + r] = table[2 * t + r] }
    waiting[t] = ASKING;
    asked_in[t] = pass;
    answered[t] = false
  }
}

inline apply(t, n) {
  for (r : 0 .. 1) {
    if
    :: delta[DELTA(t, n, r)] ->
         value[r] = value[r] + delta[DELTA(t, n, r)];
         counter++;
         version[r] = counter
    :: else
    fi
  }
  applied[t] = n
}

inline sync() {
  for (r : 0 .. 1) {
    synced_value[r] = value[r];
    synced_version[r] = version[r];
    synced_applied[r] = applied[r] /* by trainer */
  }
  synced_counter = counter
}

/* Push at the server, the first time or again: the answer may have been lost. It may be short:
 * then it has the row with the lower version, and moves the cursor only so far. A gap in the
 * numbers is what an unsynced tail has lost. */
inline serve(t, short_answer) {
  d_step {
    waiting[t] && asked_in[t] == pass && (!short_answer || NEWER(t, 0) && NEWER(t, 1)) &&
      (!answered[t] || answer_life[t] != life || answer_counter[t] != counter) ->
    if
    :: waiting[t] != ASKING && number[t] > applied[t] -> apply(t, number[t])
#ifdef REACH_REPEAT
    :: waiting[t] != ASKING && number[t] <= applied[t] -> repeated = true
#endif
    :: else
    fi;
#ifndef UNSYNCED_FLUSH
    if
    :: waiting[t] == FLUSHING -> sync()
    :: else
    fi;
#endif
    v = (version[0] <= version[1] -> 0 : 1);
    for (r : 0 .. 1) {
      answer_has[2 * t + r] = NEWER(t, r) && (!short_answer || r == v);
      answer_value[2 * t + r] = (answer_has[2 * t + r] -> value[r] : 0)
    }
    answered[t] = true;
    answer_life[t] = life;
    answer_counter[t] = counter;
    answer_cursor[t] = (short_answer -> version[v] : counter)
  }
}

/* A push of a pass that was cut. */
inline refuse(t) {
  d_step {
    waiting[t] && asked_in[t] != pass ->
    assert(waiting[t] == ASKING); /* what is flushed before the release is never refused */
    waiting[t] = 0
  }
}

/* A push that is over arrives once more; after a loss it may have an effect again. */
inline late_push(t, n) {
  d_step {
    n <= PUSHES && n > applied[t] && (n < number[t] || n == number[t] && waiting[t] < PUSHING) ->
    apply(t, n)
  }
}

/* L += V' - L0, S = V'; a row that was not sent has V' = L0. */
inline receive(t) {
  d_step {
    waiting[t] && answered[t] ->
    /* What a flush acknowledges is synced, with all before it. */
    assert(waiting[t] != FLUSHING || synced_applied[t] >= number[t]);
    for (r : 0 .. 1) {
      v = (answer_has[2 * t + r] -> answer_value[2 * t + r] : at_push[2 * t + r]);
#ifdef OVERWRITING_MERGE
      table[2 * t + r] = v;
#else
      table[2 * t + r] = table[2 * t + r] + v - at_push[2 * t + r];
#endif
      known[2 * t + r] = v
    }
    cursor_life[t] = answer_life[t];
    cursor[t] = answer_cursor[t];
    flushed[t] = flushed[t] || waiting[t] == FLUSHING;
    waiting[t] = 0
  }
}

/* Both buckets are released, so the pass is cut: a snapshot, synced. */
#ifdef RELEASE_BEFORE_FLUSH
#define RELEASED(t) MADE_BUCKET(t)
#else
#define RELEASED(t) flushed[t]
#endif
inline cut() {
  d_step {
    pass == 0 && RELEASED(0) && RELEASED(1) ->
    for (r : 0 .. 1) {
      assert((value[r] | (lost[r] & SUM_OF_PASS_0(r))) == SUM_OF_PASS_0(r))
    }
    pass = 1;
    sync()
  }
}

inline sync_in_background() {
  d_step {
    counter != synced_counter || applied[0] != synced_applied[0] ||
      applied[1] != synced_applied[1] ->
    sync()
  }
}

/* The machine dies: what was not synced is gone. (A killed process loses nothing.) */
inline restart() {
  d_step {
    restarts < RESTARTS && !FINISHED ->
    restarts++;
    life++;
    for (r : 0 .. 1) {
      lost[r] = lost[r] | (value[r] & ~synced_value[r]);
      value[r] = synced_value[r];
      version[r] = synced_version[r];
      applied[r] = synced_applied[r] /* by trainer */
    }
    counter = synced_counter
  }
}

/* A retry that is not the same bytes again. */
inline retry(t) {
  d_step {
    waiting[t] >= PUSHING && number[t] < PUSHES &&
      (table[2 * t] != at_push[2 * t] || table[2 * t + 1] != at_push[2 * t + 1]) ->
#ifdef NEW_BYTES_OLD_NUMBER
    number[t]--;
#endif
    begin_push(t)
  }
}

init {
  d_step {
#ifndef TIED_VERSIONS
    version[0] = 1; version[1] = 2;
    synced_version[0] = 1; synced_version[1] = 2;
#endif
    for (r : 0 .. 1) { cursor_life[r] = 1; cursor[r] = counter }
    skip
  }
  do
  :: FINISHED -> break
  :: atomic {
       if
       :: update(0)
       :: update(1)
       :: push(0)
       :: push(1)
       :: flush(0)
       :: flush(1)
       :: ask(0)
       :: ask(1)
       :: serve(0, 0)
       :: serve(0, 1)
       :: serve(1, 0)
       :: serve(1, 1)
       :: refuse(0)
       :: refuse(1)
       :: late_push(0, 1)
       :: late_push(0, 2)
       :: late_push(0, 3)
       :: late_push(0, 4)
       :: late_push(1, 1)
       :: late_push(1, 2)
       :: late_push(1, 3)
       :: late_push(1, 4)
       :: receive(0)
       :: receive(1)
       :: cut()
       :: sync_in_background()
       :: restart()
#if defined(RECOMPUTED_RETRY) || defined(NEW_BYTES_OLD_NUMBER)
       :: retry(0)
       :: retry(1)
#endif
       fi;
       settle()
     }
  od
}
