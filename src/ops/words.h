/* words.h - the description of an op (fr_described in extend.h), read once into numbers. */
#ifndef FRI_OPS_WORDS_H
#define FRI_OPS_WORDS_H

#include <frugal/extend.h>

enum {
    FRI_OPERANDS = 9,      /* the most of an op */
    FRI_WORDS = 11,        /* the most of a step */
    FRI_WORD_DY = 31,      /* fri_word.at of the result's gradient, */
    FRI_WORD_NONE = 30,    /* and of no operand */
    FRI_LETTERS = 26,      /* sizes, from 'a' */
    FRI_FORWARD_STEPS = 2, /* as in fr_described */
    FRI_BACKWARD_STEPS = 3,
};

typedef enum fri_operand_type {
    FRI_TYPE_FLOAT, /* the op's type */
    FRI_TYPE_REAL,  /* of statistics */
    FRI_TYPE_BIAS,  /* the op's type or f32; a result: the op's */
    FRI_TYPE_I64,
    FRI_TYPE_ANY, /* a result: the type that the call says */
} fri_operand_type;

typedef struct fri_operand {
    char name[16];
    fri_operand_type type;
    bool optional;
    bool shaped;                /* brackets are given */
    bool leading;               /* * before the letters */
    int rank;                   /* letters */
    int8_t letter[FR_MAX_RANK]; /* from 0 */
    int over;                   /* a result: the input whose place it may take, or -1 */
} fri_operand;

typedef struct fri_word {
    int8_t at;      /* the operand, or FRI_WORD_DY */
    bool gradient;  /* of the operand: the step makes it */
    bool optional;  /* may be absent */
    bool along;     /* made if the step runs anyway */
    bool joined;    /* made if the word before or after it is */
    bool over_dy;   /* may take the place of dy, */
    int8_t over_at; /* or of the operand, -1: none */
} fri_word;

typedef struct fri_reading_step {
    int n, reads; /* words in all, and before the ">" */
    fri_word word[FRI_WORDS];
    uint32_t operands; /* bits of the operands that the step reads; bit FRI_WORD_DY: dy */
} fri_reading_step;

typedef struct fri_reading {
    fr_op op; /* of nodes; first, so that a node's op leads back */
    const fr_described *of;
    int n, inputs;
    fri_operand operand[FRI_OPERANDS];
    int slots;                    /* operands that a backward step reads, or the description keeps */
    int8_t slot_of[FRI_OPERANDS]; /* -1: never saved */
    int8_t at_slot[FRI_OPERANDS];
    fri_reading_step forward[FRI_FORWARD_STEPS], backward[FRI_BACKWARD_STEPS]; /* n 0: none */
} fri_reading;

/* The reading of d, made by the first call. FR_EINVAL: the description contradicts itself; FR_ENOMEM. */
fr_status fri_read_description(fr_described *d, const fri_reading **out);

#endif
