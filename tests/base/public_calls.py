#!/usr/bin/env python3
"""Writes the tests of the rule about NULL (base.h), one for each header.

Usage: public_calls.py OUT HEADER...

A test calls each function that takes a pointer, with each pointer argument NULL in turn, the others as test_null.c
makes them. A pointer must not be NULL unless MAY_BE_NULL names it, so a new function is covered as soon as it is
declared; a parameter of a type that is not in VALUE fails the build with its name.
"""
import os
import re
import sys

# What stands for an argument, by its type. The names are fields of `given` in test_null.c.
VALUE = {
    "fr_tensor *": "given.x", "const fr_tensor *": "given.x", "fr_tensor **": "&given.slot",
    "fr_tensor *const *": "given.list", "fr_node *": "given.node", "const fr_node *": "given.node",
    "fr_module *": "given.module", "const fr_module *": "given.module", "fr_module **": "&given.module_slot",
    "fr_optimizer *": "given.optimizer", "const fr_optimizer *": "given.optimizer",
    "fr_optimizer **": "&given.optimizer_slot",
    "fr_grad_scaler *": "given.scaler", "const fr_grad_scaler *": "given.scaler",
    "fr_grad_scaler **": "&given.scaler_slot",
    "fr_comm *": "given.comm", "const fr_comm *": "given.comm", "fr_comm **": "&given.comm_slot",
    "fr_share *": "given.share", "const fr_share *": "given.share", "fr_share **": "&given.share_slot",
    "fr_dataset *": "given.dataset", "const fr_dataset *": "given.dataset", "fr_dataset **": "&given.dataset_slot",
    "fr_loader *": "given.loader", "const fr_loader *": "given.loader", "fr_loader **": "&given.loader_slot",
    "fr_plan *": "given.plan", "const fr_plan *": "given.plan", "fr_plan **": "&given.plan_slot",
    "fr_summary *": "given.summary", "const fr_summary *": "given.summary", "fr_summary **": "&given.summary_slot",
    "fr_pool *": "given.pool", "fr_pool **": "&given.pool_slot",
    "fr_net *": "given.net", "const fr_net *": "given.net", "fr_net **": "&given.net_slot",
    "fr_value *": "given.values", "const fr_value *": "given.values",
    "fr_largest_op **": "&given.largest_op_slot", "const fr_largest_op *": "given.largest_op_slot",
    "fr_fit *": "&given.fit",
    "const fr_op *": "&given.op", "const fr_module_class *": "&given.class",
    "struct DLManagedTensorVersioned **": "&given.dlpack",
    "const char *": "NOWHERE", "char *": "given.text", "const char **": "&given.words", "FILE *": "given.file",
    "const void *": "given.bytes", "void *": "given.bytes", "uint8_t *": "given.bytes", "void **": "&(void *){NULL}",
    "const fr_flag *": "fr_flag_next(NULL, NULL)", "char *const *": "(char *[]){NULL}",
    "const int64_t *": "given.numbers", "int64_t *": "given.numbers", "double *": "given.reals",
    "const double *": "given.reals",
    "size_t *": "given.sizes", "const size_t *": "given.sizes", "const int *": "given.ints", "int *": "given.ints",
    "uint32_t *": "(uint32_t[4]){0}", "bool *": "given.flags", "const bool *": "given.flags",
    "int": "1", "int64_t": "1", "size_t": "1", "uint64_t": "1", "double": "1", "bool": "false", "unsigned": "1",
}
BY_VALUE = re.compile(r"^(fr_\w+)$")          # enums and small structs: zeroed
BY_POINTER = re.compile(r"^(?:const )?((?:struct )?fr_\w+) \*$")  # structs of options, results: zeroed
FUNCTION = re.compile(r"_fn \*$|\(")           # callbacks

# "function.parameter": NULL has a meaning there, which its header tells. "*.parameter": in every function.
MAY_BE_NULL = set("""
    *.opts *.ctx *.ctx_free *.running_mean *.running_var
    fr_batchnorm2d.gamma fr_batchnorm2d.beta fr_inplace_abn.gamma fr_inplace_abn.beta
    fr_conv2d.b fr_conv_transpose2d.b fr_linear.b fr_checkpoint_segments.weight
    fr_net_status.n fr_checkpoint_plan.first fr_module_freeze.prefix
    fr_backward.grad fr_tensor_set_grad.grad fr_tensor_set_grad_hook.fn fr_offload_open.path
    fr_clip_grad_norm.norm fr_grad_scaler_update.skipped
    fr_dataset_read.pixels fr_dataset_read.height fr_dataset_read.width fr_dataset_read.channels
    fr_flag_next.p fr_flag_next.f fr_flag_named.p
    fr_predict.as fr_predict_mask.as fr_plan_use_arena.out fr_plan_install.out fr_onnx_save.path fr_state_save.path
    fr_state_find_latest.fn
""".split())
# What stands for nothing; else 0 or NULL.
NONE = {"fr_comm_size": 1, "fr_share_rounds": 1, "fr_share_micro_batch": 1}
OF_PROGRAMS = {"fr_train_main", "fr_train_run"}  # of frugal-cli
MUST_NOT = {"fr_fit_find.opts"}  # options without defaults


def declarations(text):
    """(result, name, [(type, parameter)]) of each FR_API function."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    text = re.sub(r"__attribute__\(\(\w+\([^)]*\)\)\)", "", text)
    found = list(re.finditer(r"\bFR_API\s+([\w ]+?[\s*]+)(fr_\w+)\s*\((.*?)\)\s*;", text, flags=re.S))
    if len(found) != text.count("FR_API"):
        sys.exit(f"public_calls.py: {text.count('FR_API')} declarations, {len(found)} of them understood")
    for m in found:
        result = re.sub(r"\s+", " ", m.group(1)).strip()
        parts = re.split(r",(?![^()]*\))", re.sub(r"\s+", " ", m.group(3)).strip())
        yield result, m.group(2), [parameter(p.strip()) for p in parts if p.strip() not in ("void", "...", "")]


def parameter(text):
    pointer = re.match(r"^(.*\(\*)(\w+)(\).*)$", text)
    if pointer:
        return pointer.group(1) + pointer.group(3), pointer.group(2)
    array = re.match(r"^(.*?)\s*(\w+)\[\w*\]$", text)
    if array:
        return array.group(1) + " *", array.group(2)
    kind, name = re.match(r"^(.*?)(\w+)$", text).groups()
    return kind.strip(), name


def is_pointer(kind):
    return kind.endswith("*") or "(" in kind


def value(function, kind, name):
    if kind in VALUE:
        return VALUE[kind]
    if FUNCTION.search(kind):
        return "given_" + (kind.split()[0] if "_fn" in kind else "free")
    if BY_VALUE.match(kind):
        return f"({kind}){{0}}"
    if BY_POINTER.match(kind):
        return f"&({BY_POINTER.match(kind).group(1)}){{0}}"
    sys.exit(f"public_calls.py: {function}: no value for parameter '{name}' of type '{kind}'")


def may_be_null(function, name):
    return f"{function}.{name}" not in MUST_NOT and (f"{function}.{name}" in MAY_BE_NULL or f"*.{name}" in MAY_BE_NULL)


def calls(result, function, parameters):
    for i, (kind, name) in enumerate(parameters):
        if not is_pointer(kind):
            continue
        arguments = [value(function, k, n) for k, n in parameters]
        arguments[i] = "NULL"
        call = f"{function}({', '.join(arguments)})"
        if result == "fr_status":
            yield f"    {'ACCEPTED' if may_be_null(function, name) else 'REFUSED'}({function}, {name}, {call});"
        elif result == "fr_value":
            yield f"    cr_expect_lt({call}.id, 0);"
        elif result == "void" or may_be_null(function, name):
            yield f"    (void){call};"
        else:
            yield f"    NOTHING({function}, {name}, {call}{' - (%d)' % NONE[function] if function in NONE else ''});"
    if result == "void" and len(parameters) == 1 and parameters[0][0].endswith("**"):
        yield f"    {function}(&({parameters[0][0][:-1].strip()}){{NULL}});"


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for header in sys.argv[2:]:
            with open(header, encoding="utf-8") as f:
                found = [d for d in declarations(f.read()) if d[1] not in OF_PROGRAMS]
            lines = [line for declaration in found for line in calls(*declaration)]
            if lines:
                out.write(f"#include <frugal/{os.path.basename(header)}>\n")
                name = os.path.basename(header).removesuffix(".h")
                out.write(f"Test(null, {name}) {{\n" + "\n".join(lines) + "\n}\n\n")


if __name__ == "__main__":
    main()
