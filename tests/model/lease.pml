/* Leases, commits, cached copies: two trainers share two partitions through one lock server.
 *
 * One process; each step of the world is one d_step, as each change of the lock server is one
 * synced write. What was sent once may arrive late, twice or never. README.md says what is left
 * out and what the variants are. */

#ifndef PASSES
#define PASSES 1
#endif
#ifndef FAULTS
#define FAULTS 2 /* expiries, killed trainers and abandoned grants together */
#endif
#ifndef RESTARTS
#define RESTARTS 1 /* of the lock server */
#endif
#ifndef SPARE
#define SPARE 0
#endif
#define TOKENS (1 + 3 * PASSES + 3 * FAULTS + SPARE) /* a fault costs three grants at most */

/* Bucket b of a pass: 0 uses partition 0, 1 uses both, 2 uses partition 1. */
#define USES(b, p) ((b) % 3 != 2 - 2 * (p))
#define BUCKETS_OF(p) (p == 0 -> 27 : 54)
#define BIT(b) (1 << (b))
#define PASS ((done & 7) == 7 -> 1 : 0)
#define FINISHED (done == (1 << (3 * PASSES)) - 1)

/* What a table or a version holds: the bits of the buckets trained into it, and: */
#define HALF 64 /* a bucket is being trained, or was given up in the middle */
#define BAD 128 /* a bucket twice, a bucket and a half, or a version that is gone */
#define NO_NAME 255

/* The life of a grant at the lock server ... */
#define LIVE 1
#define COMMITTED 2
#define VOID 3
/* ... and at its trainer. */
#define GRANTED 1
#define TRAINING 2
#define TRAINED 3
#define SENT 4

/* The lock server's table. Durable. Token 0 is the initial version. */
byte status[TOKENS];
bit owner[TOKENS];
byte bucket[TOKENS];
byte base[2 * TOKENS];    /* [2 * token + partition] */
byte current[2];
byte done;
byte next_token = 1;
bool session[2];          /* live? */
byte offered[2];          /* the grant of the last AcquireBucket number, its answer on the way */
bool overdue[2];          /* in memory only */

/* The versions: as copied at the barrier, then as stored. */
byte content[2 * TOKENS];
bool sent[TOKENS];        /* a ReleaseBucket is on the way */

/* Trainers: two grants in order, and a table per partition. */
byte held[4];             /* [2 * trainer + n]: token */
byte phase[4];
byte table[4];            /* [2 * trainer + partition] */
byte name[4];
bool down[2];

byte faults, restarts;    /* spent */
#if defined(REACH_EXPIRY) || defined(REACH_LOOK_AHEAD)
bool expired, handed_on;
#define SAW(what, condition) what = what || (condition)
#else
#define SAW(what, condition) skip
#endif

/* What follows from the rest; settle() computes it. */
byte holder[2];           /* 0: free, 1 + trainer */
byte latest[2];           /* newest live token */
byte live_grants[2];
byte granted;             /* buckets in live grants */
byte on_the_way[2];       /* the token in a ReleaseBucket that would have an effect */

#ifdef VOLATILE_EXPIRY
int unwritten;            /* tokens whose end is only in memory */
#endif
#ifdef ACKNOWLEDGE_EARLY
byte unsynced, before[2], answered;
#endif
#if defined(VOLATILE_EXPIRY) || defined(ACKNOWLEDGE_EARLY) || defined(NO_LIVENESS_CHECK)
#define DEAD_MAY_RISE
#endif
#if defined(PER_LEASE) || defined(NO_ACQUIRE_NUMBER) || defined(DEAD_MAY_RISE)
#define CHAIN_MAY_BREAK
#endif

#ifdef NO_LIVENESS_CHECK
#define RELEASABLE(tok) (status[tok] != COMMITTED)
#else
#define RELEASABLE(tok) (status[tok] == LIVE)
#endif

hidden byte i, p, k;
hidden byte fits;

#define IN_TRAINING(t, n, p) (phase[2 * (t) + n] == TRAINING && USES(bucket[held[2 * (t) + n]], p))

/* Ends every step: what follows from the rest, what nobody can see any more, the invariants. */
inline settle() {
  d_step {
    granted = 0;
    for (p : 0 .. 1) { holder[p] = 0; latest[p] = 0; live_grants[p] = 0; on_the_way[p] = 0 }
    for (k : 1 .. TOKENS - 1) {
      if
      :: status[k] == LIVE ->
           granted = granted | BIT(bucket[k]);
           live_grants[owner[k]]++;
           for (p : 0 .. 1) {
             if
             :: USES(bucket[k], p) ->
                  /* I1: one session a partition; its grants form a chain. */
                  assert(holder[p] == 0 || holder[p] == 1 + owner[k]);
#ifndef CHAIN_MAY_BREAK
                  assert(base[2 * k + p] == (latest[p] -> latest[p] : current[p]));
#endif
                  holder[p] = 1 + owner[k];
                  latest[p] = k
             :: else
             fi
           }
      :: else
#ifndef DEAD_MAY_RISE
           -> owner[k] = 0; sent[k] = 0; base[2 * k] = 0; base[2 * k + 1] = 0;
           if
           :: status[k] == VOID -> bucket[k] = 0
           :: else
           fi
#endif
      fi;
      if
      :: sent[k] && RELEASABLE(k) && on_the_way[owner[k]] == 0 -> on_the_way[owner[k]] = k
      :: else
      fi
    }
#ifndef DEAD_MAY_RISE
    /* A version that is neither current nor a live grant's is garbage for ever. */
    for (k : 0 .. TOKENS - 1) {
      for (p : 0 .. 1) {
        if
        :: k < next_token && status[k] != LIVE && current[p] != k -> content[2 * k + p] = BAD
        :: else
        fi
      }
    }
#endif
    for (i : 0 .. 3) {
      p = i % 2;
      if
      :: name[i] != NO_NAME && name[i] != current[p] && status[name[i]] != LIVE -> name[i] = NO_NAME
      :: else
      fi;
      if
      :: name[i] == NO_NAME && !IN_TRAINING(i / 2, 0, p) && !IN_TRAINING(i / 2, 1, p) -> table[i] = 0
      :: else
      fi
    }
#ifdef ACKNOWLEDGE_EARLY
    assert((answered & done) == answered); /* I5 */
#endif
    for (p : 0 .. 1) {
      /* I2: a current version is the initial one and each done bucket of its partition, once. */
      assert(content[2 * current[p] + p] == (done & BUCKETS_OF(p)));
      /* I4 */
      assert(current[p] == 0 || status[current[p]] == COMMITTED)
    }
#ifdef REACH_PASS
    assert(!FINISHED);
#endif
#ifdef REACH_EXPIRY
    assert(!FINISHED || !expired);
#endif
#ifdef REACH_LOOK_AHEAD
    assert(!FINISHED || !handed_on);
#endif
    skip
  }
}

/* Voids the live grants of a session from a token on. */
inline void_from(t, tok) {
  for (k : 1 .. TOKENS - 1) {
    if
    :: status[k] == LIVE && owner[k] == t && k >= tok -> status[k] = VOID
    :: else
    fi
  };
  skip /* a d_step must not end in a loop */
}

/* The trainer's memory is gone, or it was told that its session is over (T4). */
inline forget(t) {
  for (i : 2 * t .. 2 * t + 1) {
    held[i] = 0; phase[i] = 0;
#ifndef STALE_NAME
    table[i] = 0; name[i] = NO_NAME
#endif
  }
  offered[t] = 0
}

inline drop_older(t) {
  held[2 * t] = held[2 * t + 1]; phase[2 * t] = phase[2 * t + 1];
  held[2 * t + 1] = 0; phase[2 * t + 1] = 0
}

/* AcquireBucket at the lock server. One number, one grant (I6). The trainers are alike, so the
 * first grant goes to the first. */
#ifdef NO_ACQUIRE_NUMBER
#define MAY_ASK(t) (next_token < TOKENS)
#else
#define MAY_ASK(t) (offered[t] == 0)
#endif
inline grant(t, b) {
  d_step {
    session[t] && !down[t] && MAY_ASK(t) && held[2 * t + 1] == 0 && live_grants[t] < 2 &&
      !((done | granted) & BIT(b + 3 * PASS)) && !FINISHED &&
      (!USES(b, 0) || holder[0] == 0 || holder[0] == 1 + t) &&
      (!USES(b, 1) || holder[1] == 0 || holder[1] == 1 + t) &&
      (t == 0 || next_token > 1) ->
    k = next_token;
    assert(k < TOKENS);
    next_token++;
    status[k] = LIVE;
    owner[k] = t;
    bucket[k] = b + 3 * PASS;
    for (p : 0 .. 1) {
      if
      :: USES(b, p) ->
           base[2 * k + p] = (latest[p] -> latest[p] : current[p]);
           SAW(handed_on, latest[p])
      :: else
      fi
    }
    offered[t] = k;
#ifdef ACKNOWLEDGE_EARLY
    unsynced = 0;
#endif
  }
}

/* The answer arrives, perhaps after the grant was voided. */
inline receive_grant(t) {
  d_step {
    offered[t] && !down[t] && held[2 * t + 1] == 0 ->
    i = (held[2 * t] -> 2 * t + 1 : 2 * t);
    held[i] = offered[t];
    phase[i] = GRANTED;
    offered[t] = 0
  }
}

/* The first batch: a copy that has the base's name stays, anything else is read. What a trainer
 * does for a void grant before it hears of it is seen by nobody, so it does nothing. */
inline begin(t, n) {
  d_step {
    phase[2 * t + n] == GRANTED && (n == 0 || phase[2 * t] >= TRAINED) &&
      status[held[2 * t + n]] != VOID ->
    k = held[2 * t + n];
    for (p : 0 .. 1) {
      i = 2 * t + p;
      if
      :: USES(bucket[k], p) ->
           if
           :: name[i] != base[2 * k + p] -> table[i] = content[2 * base[2 * k + p] + p]
           :: table[i] & HALF && name[i] == base[2 * k + p] -> table[i] = table[i] | BAD
           :: else
           fi;
           table[i] = table[i] | HALF;
#ifdef STALE_NAME
           name[i] = base[2 * k + p]
#else
           name[i] = NO_NAME /* T1 */
#endif
      :: else
      fi
    }
    phase[2 * t + n] = TRAINING
  }
}

/* The barrier after the last batch: what leaves, and a copy of what stays, are set apart. */
inline end_bucket(t, n) {
  d_step {
    phase[2 * t + n] == TRAINING && status[held[2 * t + n]] != VOID ->
    k = held[2 * t + n];
    for (p : 0 .. 1) {
      i = 2 * t + p;
      if
      :: USES(bucket[k], p) ->
           if
           :: table[i] & BIT(bucket[k]) -> table[i] = table[i] | BAD
           :: else
           fi;
           table[i] = (table[i] | BIT(bucket[k])) & (255 - HALF);
           name[i] = k;
           content[2 * k + p] = table[i]
      :: else
      fi
    }
    phase[2 * t + n] = TRAINED
  }
}

/* In the background: stored from the copy, then the release is sent, in the order of the grants. */
inline store(t) {
  d_step {
    phase[2 * t] == TRAINED && status[held[2 * t]] != VOID ->
    k = held[2 * t];
#ifdef UPLOAD_LIVE_TABLE
    for (p : 0 .. 1) {
      if
      :: USES(bucket[k], p) -> content[2 * k + p] = table[2 * t + p]
      :: else
      fi
    }
#endif
    sent[k] = 1;
    phase[2 * t] = SENT
  }
}

/* ReleaseBucket at the lock server. A release of a token that is not live, repeated or late,
 * changes nothing: there is no step for it. */
inline release(t) {
  d_step {
    on_the_way[t] ->
    k = on_the_way[t];
    fits = 1;
    for (p : 0 .. 1) {
      fits = fits && (!USES(bucket[k], p) || base[2 * k + p] == current[p])
    }
#ifdef NO_BASE_COMPARISON
    fits = 1;
#endif
    if
    :: fits ->
         assert(status[k] == LIVE);          /* I4 */
         assert(!(done & BIT(bucket[k])));   /* I2: one token a bucket */
#ifdef ACKNOWLEDGE_EARLY
         unsynced = k; before[0] = current[0]; before[1] = current[1];
#endif
         for (p : 0 .. 1) {
           if
           :: USES(bucket[k], p) -> current[p] = k
           :: else
           fi
         }
         done = done | BIT(bucket[k]);
         status[k] = COMMITTED
    :: else ->
#ifndef CHAIN_MAY_BREAK
         assert(false);  /* sessions that end whole leave nothing to refuse */
#endif
         i = k;
         sent[i] = 0;
         if
         :: status[i] == LIVE -> void_from(t, i)
         :: else
         fi
    fi
  }
}

inline receive_commit(t) {
  d_step {
    phase[2 * t] == SENT && status[held[2 * t]] == COMMITTED ->
#ifdef ACKNOWLEDGE_EARLY
    answered = answered | BIT(bucket[held[2 * t]]);
#endif
    drop_older(t)
  }
}

/* Aborted, or a heartbeat's answer names a void token. */
#define IS_VOID(tok) (tok && status[tok] == VOID)
inline learn_void(t) {
  d_step {
    !session[t] || !down[t] && (IS_VOID(held[2 * t]) || IS_VOID(held[2 * t + 1]) ||
                                IS_VOID(offered[t])) ->
#ifdef PER_LEASE
    /* The lost lease alone is given up. */
    if
    :: IS_VOID(held[2 * t]) -> drop_older(t)
    :: else -> 
         if
         :: IS_VOID(held[2 * t + 1]) -> held[2 * t + 1] = 0; phase[2 * t + 1] = 0
         :: else -> offered[t] = 0
         fi
    fi;
    session[t] = 1; down[t] = 0;
#else
    /* Everything is forgotten; the trainer registers anew. */
    void_from(t, 0);
    forget(t);
    session[t] = 1; overdue[t] = 0; down[t] = 0;
#endif
  }
}

/* No heartbeat for a lease: first in memory ... */
inline fall_silent(t) {
  d_step {
    session[t] && !overdue[t] && !FINISHED && (down[t] || faults < FAULTS && live_grants[t] > 0) ->
    faults = faults + (down[t] -> 0 : 1);
    overdue[t] = 1
  }
}

/* ... then all the session's grants end in one write, before their buckets are granted again. */
inline expire(t) {
  d_step {
    session[t] && overdue[t] ->
    overdue[t] = 0;
    SAW(expired, !down[t]);
#ifdef PER_LEASE
    if
    :: down[t] -> void_from(t, 0); session[t] = 0
    :: else ->
         for (k : 1 .. TOKENS - 1) {
           if
           :: status[k] == LIVE && owner[k] == t -> status[k] = VOID; break
           :: else
           fi
         }
    fi;
    skip
#else
#ifdef VOLATILE_EXPIRY
    for (k : 1 .. TOKENS - 1) {
      if
      :: status[k] == LIVE && owner[k] == t -> unwritten = unwritten | BIT(k)
      :: else
      fi
    }
#endif
#ifdef ACKNOWLEDGE_EARLY
    unsynced = 0;
#endif
    void_from(t, 0);
    session[t] = 0;
#endif
  }
}

inline kill_trainer(t) {
  d_step {
    session[t] && !down[t] && faults < FAULTS && !FINISHED && live_grants[t] > 0 ->
    faults++;
    forget(t);
    down[t] = 1
  }
}

/* AbandonBucket of the newest grant, with its successors; the session goes on. */
inline abandon(t, n) {
  d_step {
    session[t] && faults < FAULTS && held[2 * t + n] && phase[2 * t + n] < TRAINED &&
      (n == 1 || held[2 * t + 1] == 0) && status[held[2 * t + n]] == LIVE ->
    faults++;
    void_from(t, held[2 * t + n]);
    held[2 * t + n] = 0; phase[2 * t + n] = 0
  }
}

/* The lock server dies and comes back with its table and full leases for all. */
inline restart() {
  d_step {
    restarts < RESTARTS && !FINISHED ->
    restarts++;
    overdue[0] = 0; overdue[1] = 0;
#ifdef VOLATILE_EXPIRY
    for (k : 1 .. TOKENS - 1) {
      if
      :: unwritten & BIT(k) -> status[k] = LIVE; session[owner[k]] = 1
      :: else
      fi
    }
    unwritten = 0;
#endif
#ifdef ACKNOWLEDGE_EARLY
    if
    :: unsynced ->
         status[unsynced] = LIVE;
         done = done & (255 - BIT(bucket[unsynced]));
         current[0] = before[0]; current[1] = before[1];
         unsynced = 0
    :: else
    fi;
#endif
  }
}

init {
  d_step {
    session[0] = 1; session[1] = 1;
    for (i : 0 .. 3) { name[i] = NO_NAME }
    skip
  }
  do
  :: FINISHED -> break
  :: atomic {
       if
       :: grant(0, 0)
       :: grant(0, 1)
       :: grant(0, 2)
       :: grant(1, 0)
       :: grant(1, 1)
       :: grant(1, 2)
       :: receive_grant(0)
       :: receive_grant(1)
       :: begin(0, 0)
       :: begin(0, 1)
       :: begin(1, 0)
       :: begin(1, 1)
       :: end_bucket(0, 0)
       :: end_bucket(0, 1)
       :: end_bucket(1, 0)
       :: end_bucket(1, 1)
       :: store(0)
       :: store(1)
       :: release(0)
       :: release(1)
       :: receive_commit(0)
       :: receive_commit(1)
       :: learn_void(0)
       :: learn_void(1)
       :: fall_silent(0)
       :: fall_silent(1)
       :: expire(0)
       :: expire(1)
       :: kill_trainer(0)
       :: kill_trainer(1)
       :: abandon(0, 0)
       :: abandon(0, 1)
       :: abandon(1, 0)
       :: abandon(1, 1)
       :: restart()
       fi;
       settle()
     }
  od
}
