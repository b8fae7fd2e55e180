/* f64_names.h - the second names of the own-loop kernels.
 *
 * Those sources are compiled twice. With FRI_REAL_F64 their functions get an f64 in the name, so that both builds link
 * into one library and `grep fri_cpu_relu_forward` still finds the one definition. Included by cpu.h only. */
#ifndef FRI_CPU_F64_NAMES_H
#define FRI_CPU_F64_NAMES_H

/* rows.c */
#define fri_cpu_accepts fri_cpu_f64_accepts
#define fri_cpu_widen   fri_cpu_f64_widen
#define fri_cpu_narrow  fri_cpu_f64_narrow
#define fri_cpu_map     fri_cpu_f64_map
#define fri_cpu_reduce  fri_cpu_f64_reduce
/* window.c */
#define fri_cpu_window_mean_forward  fri_cpu_f64_window_mean_forward
#define fri_cpu_window_mean_backward fri_cpu_f64_window_mean_backward

/* the kernels */
#define fri_cpu_add                         fri_cpu_f64_add
#define fri_cpu_add_relu                    fri_cpu_f64_add_relu
#define fri_cpu_mul                         fri_cpu_f64_mul
#define fri_cpu_scale                       fri_cpu_f64_scale
#define fri_cpu_broadcast                   fri_cpu_f64_broadcast
#define fri_cpu_sum                         fri_cpu_f64_sum
#define fri_cpu_sum_workspace               fri_cpu_f64_sum_workspace
#define fri_cpu_relu_forward                fri_cpu_f64_relu_forward
#define fri_cpu_relu_backward               fri_cpu_f64_relu_backward
#define fri_cpu_relu_encode                 fri_cpu_f64_relu_encode
#define fri_cpu_relu_backward_bits          fri_cpu_f64_relu_backward_bits
#define fri_cpu_leaky_relu_forward          fri_cpu_f64_leaky_relu_forward
#define fri_cpu_leaky_relu_backward         fri_cpu_f64_leaky_relu_backward
#define fri_cpu_uniform                     fri_cpu_f64_uniform
#define fri_cpu_normal                      fri_cpu_f64_normal
#define fri_cpu_dropout                     fri_cpu_f64_dropout
#define fri_cpu_dropout_mask                fri_cpu_f64_dropout_mask
#define fri_cpu_dropout_apply_mask          fri_cpu_f64_dropout_apply_mask
#define fri_cpu_bias_workspace              fri_cpu_f64_bias_workspace
#define fri_cpu_cross_entropy_workspace     fri_cpu_f64_cross_entropy_workspace
#define fri_cpu_batchnorm2d_workspace       fri_cpu_f64_batchnorm2d_workspace
#define fri_cpu_batchnorm2d_stats           fri_cpu_f64_batchnorm2d_stats
#define fri_cpu_batchnorm2d_invstd          fri_cpu_f64_batchnorm2d_invstd
#define fri_cpu_batchnorm2d_finalize        fri_cpu_f64_batchnorm2d_finalize
#define fri_cpu_batchnorm2d_fold            fri_cpu_f64_batchnorm2d_fold
#define fri_cpu_batchnorm2d_apply           fri_cpu_f64_batchnorm2d_apply
#define fri_cpu_batchnorm2d_backward        fri_cpu_f64_batchnorm2d_backward
#define fri_cpu_maxpool2d_forward           fri_cpu_f64_maxpool2d_forward
#define fri_cpu_maxpool2d_backward          fri_cpu_f64_maxpool2d_backward
#define fri_cpu_maxpool2d_mask              fri_cpu_f64_maxpool2d_mask
#define fri_cpu_avgpool2d_forward           fri_cpu_f64_avgpool2d_forward
#define fri_cpu_avgpool2d_backward          fri_cpu_f64_avgpool2d_backward
#define fri_cpu_adaptive_avgpool2d_forward  fri_cpu_f64_adaptive_avgpool2d_forward
#define fri_cpu_adaptive_avgpool2d_backward fri_cpu_f64_adaptive_avgpool2d_backward
#define fri_cpu_upsample_forward            fri_cpu_f64_upsample_forward
#define fri_cpu_upsample_backward           fri_cpu_f64_upsample_backward
#define fri_cpu_embedding_forward           fri_cpu_f64_embedding_forward
#define fri_cpu_embedding_backward          fri_cpu_f64_embedding_backward
#define fri_cpu_cross_entropy_forward       fri_cpu_f64_cross_entropy_forward
#define fri_cpu_cross_entropy_backward      fri_cpu_f64_cross_entropy_backward
#define fri_cpu_count_correct               fri_cpu_f64_count_correct
#define fri_cpu_mse_forward                 fri_cpu_f64_mse_forward
#define fri_cpu_mse_backward                fri_cpu_f64_mse_backward
#define fri_cpu_unscale                     fri_cpu_f64_unscale
#define fri_cpu_norm_squared                fri_cpu_f64_norm_squared
#define fri_cpu_norm_squared_workspace      fri_cpu_f64_norm_squared_workspace
#define fri_cpu_count_up                    fri_cpu_f64_count_up
#define fri_cpu_clip_factor                 fri_cpu_f64_clip_factor
#define fri_cpu_loss_scale_update           fri_cpu_f64_loss_scale_update
#define fri_cpu_sgd                         fri_cpu_f64_sgd
#define fri_cpu_adam                        fri_cpu_f64_adam
#define fri_cpu_adam8                       fri_cpu_f64_adam8

#endif
